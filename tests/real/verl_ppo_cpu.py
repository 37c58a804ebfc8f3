"""A rollout engine on the CPU, so that verl's own PPO trainer runs where there is no GPU.

verl registers only GPU engines for rollouts. This one is registered beside them under the name `cpu`: a Ray actor per
replica that samples with the Hugging Face model. Nothing in the verl installation is edited.

    VERL_USE_EXTERNAL_MODULES=verl_ppo_cpu   actor_rollout_ref.rollout.name=cpu
    reward.custom_reward_function.path=…/verl_ppo_cpu.py        (the reward, below)

What is sampled depends only on the step of the weights, the prompt, and how often that prompt was asked in that step: two
runs that went through the same steps sample the same, however often one of them was interrupted.
"""

import os


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """The share of digits in an answer: something a random model can become better at."""
    return sum(c.isdigit() for c in solution_str) / max(1, len(solution_str))


def sample(model, prompt, seed, temperature, limit, eos):
    """Token ids and their log probabilities, one token after the other."""
    import torch

    random = torch.Generator().manual_seed(seed)
    ids, logs, cache, feed = [], [], None, torch.tensor([prompt])
    with torch.no_grad():
        while len(ids) < limit and (not ids or ids[-1] != eos):
            out = model(input_ids=feed, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logp = torch.log_softmax(out.logits[0, -1].float() / (temperature or 1.0), -1)
            token = torch.multinomial(logp.exp(), 1, generator=random) if temperature else logp.argmax().view(1)
            ids.append(int(token))
            logs.append(float(logp[token]))
            feed = token.view(1, 1)
    return ids, logs


def register():
    """Makes the engine known to verl in this process."""
    import asyncio
    import collections
    import zlib

    import ray
    import torch
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

    class CpuServer:
        def __init__(self, path, response_length):
            from transformers import AutoConfig, AutoModelForCausalLM

            torch.set_num_threads(1)
            config = AutoConfig.from_pretrained(path)
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
            self.eos, self.response_length = config.eos_token_id, response_length
            self.step, self.asked = 0, collections.Counter()
            self.turn = asyncio.Lock()

        async def load(self, weights, step):
            self.model.load_state_dict(weights, strict=False)
            self.step = self.step if step is None else step
            self.asked.clear()

        async def generate(self, request_id, prompt_ids, sampling_params, **kwargs):
            prompt = tuple(int(t) for t in prompt_ids)
            seed = zlib.crc32(repr((self.step, prompt, self.asked[prompt])).encode())
            self.asked[prompt] += 1
            limit = sampling_params.get("max_tokens") or self.response_length
            heat = sampling_params.get("temperature") or 0
            async with self.turn:
                ids, logs = await asyncio.to_thread(sample, self.model, list(prompt), seed, heat, limit, self.eos)
            return TokenOutput(
                token_ids=ids,
                log_probs=logs if sampling_params.get("logprobs") else None,
                stop_reason="completed",
                num_preempted=0,
                extra_fields={"global_steps": self.step},
            )

        async def nothing(self, *args, **kwargs):
            pass

        wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
        abort_all_requests = resume_generation = start_profile = stop_profile = nothing

    class CpuReplica(RolloutReplica):
        async def launch_servers(self):
            options = {"name": f"cpu_server_{self.replica_rank}", "num_cpus": 0, "max_concurrency": self.max_concurrency}
            server = ray.remote(CpuServer).options(**options).remote(self.model_config.path, self.config.response_length)
            await server.wake_up.remote()
            self.servers = [server]
            self._server_handle, self._server_address = server, f"cpu:{self.replica_rank}"

    class CpuRollout(base.BaseRollout):
        """Lives in every training worker and hands the gathered weights to its replica's server."""

        def __init__(self, config, model_config, device_mesh, **kwargs):
            super().__init__(config, model_config, device_mesh)
            ranks = self.config.tensor_model_parallel_size * self.config.data_parallel_size
            self.replica, place = divmod(int(os.environ["RANK"]), ranks)
            self.first = place == 0

        async def resume(self, tags):
            pass

        async def release(self):
            pass

        async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **kwargs):
            # Every rank goes through them: gathering one is a collective.
            gathered = {name: tensor.detach().clone() for name, tensor in weights}
            if self.first:
                await ray.get_actor(f"cpu_server_{self.replica}").load.remote(gathered, global_steps)

    # verl imports the class by its path.
    globals()["CpuRollout"] = CpuRollout
    base._ROLLOUT_REGISTRY[("cpu", "async")] = f"{__name__}.CpuRollout"
    RolloutReplicaRegistry.register("cpu", lambda: CpuReplica)


def give_critic_a_head():
    """verl loads a critic with flash attention, which no CPU has, and its new head is random: here the same in every run."""
    import torch
    from transformers import AutoModelForTokenClassification as Critic

    load = Critic.from_pretrained

    def from_pretrained(*args, **kwargs):
        torch.manual_seed(0)
        return load(*args, **{**kwargs, "attn_implementation": "sdpa"})

    Critic.from_pretrained = from_pretrained


# As the reward's file it is loaded under another name, in processes that need no engine.
if __name__ == "verl_ppo_cpu":
    import verl_cpu_platform  # noqa: F401

    register()
    give_critic_a_head()
