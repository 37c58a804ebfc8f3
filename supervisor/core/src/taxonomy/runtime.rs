//! Ray, inference engines, rewards, sandboxes, loggers: the roles around a trainer.

use super::row::{Kind, Row, class, holds, line};
use super::sched::long;
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "ray.name_taken",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "End what is left of the run before in that cluster.",
    )
    .lines(&[
        line("already exists", r"Failed to create placement group .* already exists"),
        line("already taken", r"(?:actor|placement group).{0,60}name .{0,60}(?:is )?already taken|The name \S+.{0,80} is already taken"),
    ])
    .examples(
        "ValueError: Failed to create placement group 'global_pool': it already exists",
        "placement group created; its name is free",
    ),
    class(
        "ray.gcs",
        Kind::Transient,
        Some(Action::Relaunch),
        "End all of Ray on these machines, look at its head node (one that takes no job: is its agent's port free?), and start again.",
    )
    .lines(&[
        line("Failed to connect to", r"Failed to connect to (?:Ray cluster at|GCS)"),
        line("GCS", r"\bGCS\b.{0,80}(?:unavailable|failed to connect|is down|unreachable|not reachable|lost|disconnected|may have been killed|cannot be reached)"),
        line("gcs_rpc_client|gcs_client", r"(?:gcs_rpc_client|gcs_client).{0,120}(?:Failed|failed|exit|unable|Unable|timed out)"),
        line("ray.init", r"ray\.init.{0,80}timed? ?out"),
        line("head node", r"(?:Ray )?head node.{0,60}(?:is gone|died|not reachable|unreachable|has been lost)"),
        line("raylet", r"(?:The )?[Rr]aylet (?:process )?(?:has )?(?:died|exited|terminated|crashed)|Raylet.{0,40}marked (?:this node )?as dead|local raylet (?:has )?died"),
        line("ConnectionError", r"ConnectionError: (?:Could not find any running Ray instance|Ray is trying to start at)"),
        line("No available agent", r"No available agent to submit job"),
        line("The current node", r"The current node (?:timed out during startup|has not been updated within)"),
    ])
    .examples(
        "[2026-11-02 10:01:22 E 812 901] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
        "GCS address: 10.0.0.1:6379",
    ),
    class(
        "ray.node_ended",
        Kind::Transient,
        Some(Action::Relaunch),
        "Read what Ray printed on that node before (`supervise logs`); look at its memory and its disk.",
    )
    .lines(&[line("supervise: Ray", r"^supervise: Ray has ended on node \S+ \(.{1,40}\)$")])
    .examples(
        "supervise: Ray has ended on node gpu-07 (exit code 1)",
        "Ray has ended on node gpu-07 (exit code 0), as `ray stop` asked",
    ),
    class(
        "ray.incomplete",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Look at the missing node and at Ray's ports between nodes; each needs the same Ray, and its GPUs.",
    )
    .lines(&[line(
        "supervise: the Ray cluster",
        r"^supervise: the Ray cluster is not complete after \d+ s: ",
    )])
    .examples(
        "supervise: the Ray cluster is not complete after 180 s: it has 1 of 2 machines and 8 of 16 GPUs",
        "supervise: the Ray cluster at 10.0.0.1:6379 has 2 machines and 16 GPUs",
    ),
    class(
        "ray.resources",
        Kind::Unclear,
        Some(Action::Stop),
        "Ask for no more GPUs than the cluster has; where a node was lost, bring it back.",
    )
    .lines(&[
        line("Total available GPUs", r"Total available GPUs .* is less than total desired"),
        holds("No available node types can fulfill"),
        holds("ResourceInsufficientError"),
        line("placement group", r"placement group.{0,120}(?:timed ?out|time-?out(?: after|\W*$)|could not be (?:created|scheduled)|cannot be (?:created|scheduled)|infeasible)"),
        line("placement group", r"[Tt]im(?:ed|e) ?out waiting for (?:the )?placement groups?\b|[Cc]annot provide a placement group"),
        line("cannot be scheduled", r"(?:actor|task|request)s?\b.{0,80}cannot be scheduled|The following resource request cannot be scheduled"),
        line("PlacementGroupRemoved|Unschedulable", r"(?:Actor|Task)(?:PlacementGroupRemoved|Unschedulable\w*)"),
        line("available GPUs|available NPUs", r"available (?:GPUs|NPUs).{0,40}(?:less than|not enough|insufficient)"),
        line("placement group", r"[Ff]ailed to create placement groups?\b.{0,160}(?:in \d+ sec|insufficient|not enough)"),
        line("placement group", long!(r"\bwaiting for (?:the )?placement groups?\b.{0,60}(?:\(|\b(?:for|since|after|elapsed|waited|past|already) ?)")),
    ])
    .examples(
        "ValueError: Total available GPUs 4 is less than total desired GPUs 8",
        "Total available GPUs: 8",
    ),
    class(
        "engine.all_gone",
        Kind::Deterministic,
        Some(Action::Kill),
        "Read the first engine's log from its end; the trainer waits for engines that are all gone.",
    )
    .lines(&[
        line("unhealthy|dead|gone|down|unavailable|available|left|remaining|failed|lost", r"(?:[Aa]ll|[Nn]o (?:healthy|alive|available|live|living)|0 (?:healthy|alive)).{0,30}(?:rollout |inference |generation )?(?:engine|server|replica|worker)s?.{0,30}(?:unhealthy|dead|gone|down|unavailable|available|left|remaining|failed|lost)"),
        holds("No healthy workers"),
        line(
            "engines alive|engines healthy|engines are|engines up|servers alive|servers healthy|servers are|workers alive|workers healthy|workers are|replicas alive|replicas healthy|replicas are",
            r"(?:^|[^\d./])0 ?(?:/|of) ?\d+ (?:\w+ )?(?:engine|server|replica|worker)s? (?:are |is )?(?:still )?(?:alive|healthy|up|reachable|available)|\b(?:engine|server|replica|worker)s? (?:alive|healthy|up|available)\s*[:=]? ?0 ?(?:/|of\b|$)",
        ),
        line(
            "alive engines|healthy engines|live engines|alive servers|healthy servers|alive workers|healthy workers|alive replicas|healthy replicas",
            r"\b(?:alive|healthy|live) (?:\w+ )?(?:engine|server|replica|worker)s?\s*[:=] ?0\b",
        ),
        line(
            "every engine|every server|every replica|every worker|all workers|all engines|all servers|all replicas",
            r"\b(?:every|all)(?: \d+)? (?:rollout |inference |generation )?(?:engine|server|replica|worker)s? (?:is |are |have )?(?:now |been )?(?:marked )?(?:unhealthy|dead|down|gone|lost|unreachable|failed)\b",
        ),
        line(
            "engines down|engines dead|engines gone|engines unhealthy|engines are|engines lost|servers down|servers dead|servers gone|servers unhealthy|servers are|servers lost|replicas down|replicas dead|replicas are|workers down|workers dead|workers unhealthy|workers are",
            r"(?:^|[^\d./])(?:1 ?(?:of|/) ?1|2 ?(?:of|/) ?2|3 ?(?:of|/) ?3|4 ?(?:of|/) ?4|5 ?(?:of|/) ?5|6 ?(?:of|/) ?6|7 ?(?:of|/) ?7|8 ?(?:of|/) ?8|12 ?(?:of|/) ?12|16 ?(?:of|/) ?16|24 ?(?:of|/) ?24|32 ?(?:of|/) ?32|64 ?(?:of|/) ?64) (?:\w+ )?(?:engine|server|replica|worker)s? (?:are |is )?(?:now )?(?:down|dead|gone|unhealthy|lost|unreachable)\b",
        ),
        line("engines left|servers left|workers left|replicas left|engine left", r"\bno (?:more )?(?:healthy |alive )?(?:engine|server|replica|worker)s? left\b"),
        line(
            "no engine|no server|no replica|no backend|no healthy upstream|engines remain|servers remain|replicas remain",
            r"\bno (?:engine|server|replica)s? (?:is |are )(?:left|alive|healthy|up|reachable|available)\b|\bno backends? (?:is |are )?(?:left|alive|healthy|up|reachable|available)\b|\b0 (?:engine|server|replica)s remain\b|\bno healthy upstream\b",
        ),
        line("No available workers|no_available_workers", r"No available workers(?: \(|$|\.)|no_available_workers"),
    ])
    .examples(
        "router: all 4 rollout engines are unhealthy, nothing to send requests to",
        "all rollout engines are up",
    ),
    class(
        "engine.weight_sync",
        Kind::Unclear,
        Some(Action::Kill),
        "Look at the engines' logs at that moment, and at the network between trainer and engines.",
    )
    .lines(&[
        line("update_weights", r"update_weights\w*.{0,120}(?:failed|timed? ?out|error|exception)|(?:failed|error|timed? ?out|exception).{0,80}update_weights"),
        line("weight sync|weight update|weight transfer|weight broadcast|weight push|ing weights|sync_weights|sync weights|te weights|st weights", r"(?:[Ww]eight (?:sync(?:hroni[sz]ation)?|update|transfer|broadcast|push)|sync(?:ing|hroni[sz]ing)? weights|sync_weights|(?:updat(?:e|ing)|broadcast(?:ing)?) weights).{0,80}(?:failed|timed? ?out|error|stalled|aborted)"),
        line("weight sync|weight update|weight transfer|weight broadcast|ing weights|sync weights|ing the weights|te weights|st weights|te the weights|st the weights|er weights|er the weights", r"(?:[Ff]ailed|[Tt]imed? ?out|[Ee]rror|[Tt]imeout).{0,40}(?:sync(?:ing|hroni[sz]ing)? weights|weight (?:sync|update|transfer|broadcast)|(?:updat(?:e|ing)|broadcast(?:ing)?|transfer(?:ring)?) (?:the )?weights)"),
        line("update_group", r"(?:init_weights_update_group|init_weight_update_group|weights_update_group).{0,120}(?:failed|timed? ?out|error)|(?:[Ff]ailed|error).{0,60}weights_update_group"),
    ])
    .examples(
        "RuntimeError: update_weights_from_distributed failed: Timeout waiting for engine 2",
        "update_weights took 4.2 s",
    ),
    class(
        "engine.sglang_watchdog",
        Kind::Cascade,
        Some(Action::Kill),
        "Look at the engine's stack dump above that line; the engine did no forward pass for that long.",
    )
    .lines(&[
        line("Watchdog timeout", r"Watchdog timeout \(self\.watchdog"),
        line("Detokenizer", r"[Dd]etokenizer.{0,80}(?:heartbeat|not respond|no response)|couldn't get a response from detokenizer"),
        line("Scheduler hit an exception", r"Scheduler hit an exception"),
        line("health_generate", r"/health_generate.{0,60}\b503\b"),
        line("pool memory|kv_pool_allocator", r"token.{0,30}pool memory leak detected|kv_pool_allocator memory leak detected"),
        line("Health check failed", r"Health check failed\. (?:Server|Scheduler) couldn't get a response"),
        line("Watchdog timeout", r"(?:sglang|SGLang|scheduler|tp\d).{0,80}Watchdog timeout"),
        line("watchdog", r"soft watchdog timeout|SchedulerWatchdog.{0,40}timeout|scheduler watchdog timeout"),
    ])
    .examples(
        "[2026-11-02 10:01:22 TP0] Watchdog timeout (self.watchdog_last_forward_ct=1512)",
        "[2026-11-02 10:01:22 TP0] watchdog_timeout=300",
    ),
    class(
        "engine.vllm_dead",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Read the engine's log before that line: its own error stands there.",
    )
    .lines(&[
        holds("EngineDeadError"),
        line("EngineCore", r"EngineCore (?:encountered|failed|hit|died)"),
        holds("AsyncEngineDeadError"),
        holds("Engine core initialization failed"),
        line("Engine core proc|EngineCore process", r"Engine core proc\w* .{0,40}died|EngineCore process.{0,40}(?:died|exited)"),
        line("MQEngineDeadError|Engine loop|Background loop", r"MQEngineDeadError|Engine loop (?:has died|is dead)|Background loop (?:has errored|is stopped)"),
        line("Worker proc|WorkerProc", r"Worker proc \S+ died unexpectedly|WorkerProc (?:hit an exception|initialization failed|failed to start)"),
        line("Executor failed", r"Executor failed"),
        line("RPC call to", r"RPC call to \w+ timed out"),
    ])
    .examples(
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "EngineCore initialised in 31 s",
    ),
    class(
        "reward.server",
        Kind::Unclear,
        Some(Action::Wait),
        "Look at the reward server; rewards since its first error may be defaults and poison the training.",
    )
    .lines(&[
        line("reward_|reward-|reward s|reward m|reward e|reward u|reward a|reward f|reward w|verifier|judge|grader", r"(?:reward|verifier|judge|grader)[\w ./:-]{0,60}(?:server|service|model|endpoint|url|api|worker|request|http)\w*.{0,120}(?:unavailable|unreachable|\b50[0234]\b|connection (?:refused|reset|error)|timed? ?out|failed after|not respond|down\b|Max retries)"),
        line("reward_|reward-|reward s|reward m|reward e|reward u|reward a|reward f|reward w|verifier|judge|grader", r"(?:Error|Exception|failed|timed? ?out|Timeout|refused|\b50[0234]\b).{0,100}\b(?:reward|verifier|judge|grader)[_ -]?(?:server|service|model|endpoint|url|api|manager|function|worker)"),
        line("url: /", r"(?:Max retries exceeded|[Tt]imed? ?out|refused).{0,80}url: /\S{0,80}(?:reward|score|judge|grade|verif)"),
        line("host=", r"host='(?:[\w.-]{1,40}-)?(?:rm|reward|judge|verifier|grader)[\w.-]{0,80}'.{0,80}(?:Max retries exceeded|[Tt]imed? ?out|refused)"),
        line("Error for url|Server Error", r"5\d\d Server Error: .{0,60} for url: https?://\S{0,80}(?:reward|judge|grader|verif|/score)"),
        line("Sandbox API call failed", r"Sandbox API call failed"),
        line("set to the default|set to default|score set to|reward set to|default reward|default score|are defaults", r"(?:fail|error|g[ai]ve up|giving up|gave up|time[sd]? ?out|unreach|refus|\b50\d\b).{0,160}\b(?:(?:reward|score)s? (?:is |are |were )?set to (?:the default|default|0\b|zero)|default (?:reward|score))|\b\d+ ?(?:of|/) ?\d+ (?:reward|score)s? (?:are |were )?set to (?:the )?default"),
        line("gave up|giving up", r"\b(?:reward|judge|verif\w*|grader|rm)\b.{0,120}\b(?:gave|giving) up\b"),
        line("//reward|//judge|//grader|//verifier|/get_reward", r"(?:Connect\w*Error|\w+Timeout|attempts failed|refused|[Tt]imed? ?out).{0,120}https?://\S{0,60}(?:reward|judge|grader|verifier|/score)"),
        line("compute_score", r"compute_score.{0,80}(?:timed? ?out|failed after|unreachable)"),
        line("no verdict", r"\b(?:broken|down|unusable)\b.{0,60}\bno verdicts?\b|\bno verdicts?\b.{0,60}\b(?:refus\w+|abort\w*|stopp\w+)"),
        line("fallback score|fallback reward|default score|default reward", r"(?:^|[^\d.])(?:[5-9]\d|100)(?:\.\d+)? ?% of (?:the )?(?:samples|rewards|scores|responses)\b.{0,40}\b(?:fallback|default) (?:score|reward)"),
    ])
    .examples(
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://reward-server:8000/score",
        "reward/mean: 0.503 reward/max: 1.0",
    ),
    class(
        "sandbox.exhausted",
        Kind::Transient,
        Some(Action::Wait),
        "Look at the host of the sandboxes: how many it runs, and what the container daemon says.",
    )
    .lines(&[
        line("sandbox", r"(?:[Ff]ailed|[Ee]rror|[Cc]ould not|[Uu]nable|[Cc]annot|exhausted|quota|too many|no free|maximum number of|[Tt]imed? ?out).{0,80}\bsandbox(?:es)?\b|\bsandbox(?:es)?\b.{0,80}(?:exhausted|creation failed|failed to (?:start|create)|could not be created|limit reached|quota|unavailable|no free|none left|timed? ?out|Error)"),
        line("Cannot connect to the Docker daemon", r"Cannot connect to the Docker daemon"),
        line("docker|containerd|podman", r"docker\.errors\.\w+|(?:[Dd]ocker|containerd|podman).{0,80}(?:daemon|OCI runtime).{0,80}(?:[Ee]rror|failed|not respond)"),
        line("all predefined address pools", r"all predefined address pools have been fully subnetted"),
        line("container", r"(?:[Ff]ailed|unable|could not|cannot) to (?:create|start) (?:new )?container"),
    ])
    .examples(
        "SandboxError: could not create sandbox 512 of 512: no free slot on the host",
        "sandbox pool: 512 slots, 130 in use",
    ),
    class(
        "logger.auth",
        Kind::Deterministic,
        Some(Action::Stop),
        "Set the tracker's key (WANDB_API_KEY), or its offline mode: without a key it will not start.",
    )
    .lines(&[
        line("api_key not configured|No API key configured", r"api_key not configured|No API key configured"),
        line("API key", r"The API key you provided is either invalid or missing|wandb.{0,200}API key.{0,60}(?:invalid|missing|must be \d+ char)"),
        line("wandb|W&B|swanlab.error", r"(?:wandb|W&B).{0,120}(?:user is not logged in|Error 401|<Response \[401\]>)|swanlab\.error\.\w+: 401"),
    ])
    .examples(
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "wandb: Currently logged in as: me. Use `wandb login --relogin` to force relogin",
    ),
    class(
        "logger.remote",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Set the logger to offline mode: a training needs no tracker to go on.",
    )
    .lines(&[
        line("wandb", r"wandb\.(?:errors\.)?(?:\w+\.)*(?:CommError|UsageError|AuthenticationError|Error|ServiceStartTimeoutError|MailboxError)"),
        line("wandb", r"wandb: ERROR .{0,160}|wandb.{0,120}(?:\b50[0234]\b|[Nn]etwork error|[Tt]imed? ?out|rate limit|failed to (?:init|upload|start))"),
        line("ServiceStart|HandleAbandonedError|MailboxClosedError", r"(?:ServiceStart\w+|HandleAbandonedError|MailboxClosedError)"),
        line("mlflow", r"mlflow\.exceptions\.\w+|mlflow.{0,120}(?:Max retries|refused|failed with|timed? ?out)"),
        line("swanlab", r"swanlab.{0,120}(?:[Ee]rror|failed|timed? ?out)"),
        line("neptune", r"neptune\.\S*exceptions\.\w+"),
        line("clearml", r"clearml.{0,120}(?:[Ee]rror|failed)"),
        line("comet_ml", r"comet_ml\.exceptions\.\w+"),
        line("trackio", r"trackio.{0,80}(?:[Ee]rror|failed)"),
    ])
    .examples(
        "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
        "wandb: Run data is saved locally in /data/run/wandb/run-20261102_100122-ab12cd34",
    ),
    class(
        "rollout.stall",
        Kind::Transient,
        Some(Action::Kill),
        "Look at the engines: requests are out, and none comes back.",
    )
    .lines(&[
        line("stalled|stuck|no finished|no completed|no new|timed out after|timeout after", r"(?:[Rr]ollout|[Gg]eneration|trajector(?:y|ies)|sample)s?\b.{0,80}(?:stalled|stuck|no (?:finished|completed|new) (?:sample|trajector|request|rollout)\w* (?:for|in|since)|timed? ?out after)"),
        line("no finished|no completed|no new", r"no (?:finished|completed|new) (?:sample|trajector|rollout|request)\w* (?:for|in|since) (?:the last )?\d+"),
        line("waiting for", r"[Tt]im(?:ed|e) ?out (?:while )?waiting for (?:the |\d+ )?(?:rollout|generation|sample|trajector)"),
        line("waiting for", long!(r"\bwaiting for .{0,40}(?:rollout|sample|trajector|generation|response|request)\w*\b.{0,60}(?:\(|\b(?:for|since|after|elapsed|waited|past|already) ?)")),
        line(
            "waiting for",
            long!(r"\bwaiting for .{0,40}(?:rollout|sample|trajector|generation|response|request)\w*\b.{0,60}[ ,(]", r",? (?:elapsed|so far|already|passed)"),
        ),
        line(
            " ago",
            long!(r"\blast (?:completion|sample|trajectory|response|request|rollout|finished \w+|completed \w+)\b\D{0,40}", r" ago\b"),
        ),
        line(
            "no sample|no trajector|no request|no rollout|no response|no generation|no finished|no completed",
            long!(r"\bno (?:finished |completed |new )?(?:sample|trajector|request|rollout|response|generation)\w*\b.{0,40}(?:for|in|since|within)\b\D{0,20}"),
        ),
        line(
            "still running|still waiting|outstanding|made no progress|0 tok|oldest request",
            long!(r"\b(?:rollout|sample|trajector(?:y|ies)|request|generation|response)s?\b.{0,80}(?:still (?:running|waiting)|outstanding|no progress|\b0 tok\w*/s|running for)\b\D{0,80}"),
        ),
    ])
    .examples(
        "TimeoutError: Timed out waiting for rollouts, only accepted 12 of 64.",
        "rollout 12 of 64 accepted",
    )
    .told_by("the clock of finished samples"),
    class(
        "engine.http",
        Kind::Unclear,
        Some(Action::RelaunchLater),
        "Look at the engine's log at that moment: it may be dead, or only slow.",
    )
    .lines(&[
        line("Server disconnected|ServerDisconnected", r"Server ?[Dd]isconnected"),
        line("ClientConnectorError|ClientOSError|ClientPayloadError|ServerTimeoutError", r"ClientConnectorError|ClientOSError|ClientPayloadError|ServerTimeoutError"),
        line("httpx|httpcore", r"(?:httpx|httpcore)\.(?:ConnectError|ReadTimeout|ReadError|RemoteProtocolError|ConnectTimeout|PoolTimeout|HTTPStatusError)"),
        line("ReadTimeout|Read timed out|Max retries", r"(?:ReadTimeout|Read timed out|Max retries exceeded).{0,200}(?:/generate|/v1/|/health|/update|/completions|:3\d{4}|:8\d{3})|(?:/generate|/v1/|/health).{0,160}(?:ReadTimeout|Read timed out|Max retries exceeded)"),
        // A server of the run's own, by its address: never the hub.
        line("Server Error", r"5\d\d Server Error: .{0,80} for url: http://(?:\d{1,3}(?:\.\d{1,3}){3}|localhost)[:/]"),
        line("Failed after", r"Failed after \d+ retries each\."),
        line("health check|health probe", r"[Hh]ealth (?:check|probe)\w*.{0,80}(?:failed \d+ times|failed after|failed \(|has failed|consecutive)"),
        line("health_generate|/health failed|/health timed|/health time|/health unreachable|/health refused", r"/health(?:_generate)?\b.{0,60}(?:failed|timed? ?out|unreachable|refused)"),
        line("consecutive_failures", r"\bconsecutive_failures\W{1,4}(?:[3-9]|\d\d)"),
        line("HTTPConnectionPool", r"\bHTTPConnectionPool\(host='[\w.-]+', port=\d+\): (?:Read timed out|Max retries exceeded)"),
        line("can't be reached|cannot be reached|could not be reached|not answer", r"\b(?:server|engine)\b.{0,60}(?:can't|cannot|could not) be reached at|\bengine\b.{0,60}does not answer"),
        line("Cannot connect to host", r"^(?:\w+\.)*\w+(?:Error|Exception)\b.{0,120}Cannot connect to host \d{1,3}(?:\.\d{1,3}){3}:\d+"),
        line("openai.|litellm.", r"openai\.(?:APIConnectionError|APITimeoutError|InternalServerError)|^(?:openai|litellm)\.\S*RateLimitError|litellm\.\S*(?:Timeout|APIConnectionError|InternalServerError)"),
    ])
    .examples(
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        "health check of engine 3 ok after 2 s",
    ),
    class(
        "ray.actor_died",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Open the session logs of that worker; where nothing stands there, look for the OOM killer.",
    )
    .lines(&[
        line("ActorDiedError|RayActorError|ActorUnavailableError", r"ActorDiedError|RayActorError|ActorUnavailableError"),
        line("actor died|actor is dead", r"[Tt]he actor (?:died unexpectedly|is dead because)"),
        holds("WorkerCrashedError"),
        holds("Worker exit type: SYSTEM_ERROR"),
        line("A worker died", r"A worker died or was killed while executing a task"),
        line("OwnerDiedError|ObjectLostError|LocalRayletDiedError", r"OwnerDiedError|ObjectLostError|LocalRayletDiedError"),
        line("leased worker has", r"The leased worker has unrecoverable failure"),
    ])
    .errors(&["ActorDiedError", "RayActorError"])
    .examples(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "actor 12 exited as intended",
    ),
    class(
        "ray.task_error",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Read the exception inside: Ray only carried it.",
    )
    .lines(&[line("RayTaskError", r"RayTaskError(?:\(\w+\))?:?")])
    .examples(
        "ray.exceptions.RayTaskError: ray::TaskRunner.run() (pid=71, ip=10.0.0.1)",
        "ray task finished without an error",
    )
    .told_by("the exception inside the wrapper, where there is one"),
];
