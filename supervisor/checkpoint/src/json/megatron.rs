//! Fields of `transformer_config.json`, the configuration that Megatron saves with a model: the attributes of its class that JSON can
//! express.

pub(super) const FLAGS: &str = "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split activation_func_fp8_input_store add_bias_linear \
    add_qkv_bias apply_query_key_layer_scaling apply_residual_connection_post_layernorm apply_rope_fusion \
    async_tensor_model_parallel_allreduce attention_output_gate attention_softmax_in_fp32 barrier_with_L1_time batch_invariant_mode \
    batch_p2p_comm batch_p2p_sync bf16 bias_activation_fusion bias_dropout_fusion cache_mla_latents calculate_per_token_loss \
    clone_scatter_output_in_embedding cpu_offloading cpu_offloading_activations cpu_offloading_double_buffering cpu_offloading_weights \
    cross_entropy_loss_fusion cuda_graph_retain_backward_graph cuda_graph_use_single_mempool deallocate_pipeline_outputs \
    defer_embedding_wgrad_compute delay_wgrad_compute deterministic_mode disable_bf16_reduced_precision_matmul \
    disable_parameter_transpose_cache distribute_saved_activations dsa_indexer_use_sparse_loss enable_autocast enable_cuda_graph \
    ep_overlap_early_attn_memory_release external_cuda_graph fine_grained_activation_offloading first_last_layers_bf16 flash_decode \
    fp16 fp32_residual_connection fp4_param fp8_dot_product_attention fp8_multi_head_attention fp8_param fp8_wgrad \
    fused_single_qkv_rope gated_linear_unit gradient_accumulation_fusion hetereogenous_dist_checkpoint heterogeneous_block_specs \
    hybrid_context_parallel inference_fuse_tp_communication inference_rng_tracker init_model_with_meta_device is_hybrid_model \
    layernorm_zero_centered_gamma log_max_attention_logit masked_softmax_fusion memory_efficient_layer_norm moe_apply_probs_on_input \
    moe_enable_deepep moe_enable_routing_replay moe_extended_tp moe_grouped_gemm moe_layer_recompute moe_pad_expert_input_to_capacity \
    moe_per_layer_logging moe_permute_fusion moe_router_enable_expert_bias moe_router_force_load_balancing moe_router_fusion \
    moe_router_padding_for_fp8 moe_router_padding_for_quantization moe_router_pre_softmax moe_shared_expert_gate \
    moe_shared_expert_overlap moe_token_dropping moe_use_legacy_grouped_gemm mtp_standalone multi_latent_attention \
    overlap_moe_expert_parallel_comm overlap_p2p_comm overlap_p2p_comm_warmup_flush perform_initialization persist_layer_norm qk_clip \
    qk_l2_norm qk_layernorm rotary_interleaved sequence_parallel test_mode tp_comm_atomic_ag tp_comm_atomic_rs tp_comm_bulk_dgrad \
    tp_comm_bulk_wgrad tp_comm_overlap tp_comm_overlap_ag tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv tp_comm_overlap_rs \
    tp_comm_overlap_rs_dgrad tp_comm_split_ag tp_comm_split_rs tp_only_amax_red use_cpu_initialization use_fused_weighted_squared_relu \
    use_inference_optimized_layers use_kitchen use_kitchen_attention use_mamba_mem_eff_path use_ring_exchange_p2p \
    use_te_activation_func use_te_rng_tracker variable_seq_lengths";
pub(super) const COUNTS: &str = "context_parallel_size cpu_offloading_num_layers cuda_graph_warmup_steps dsa_indexer_head_dim dsa_indexer_n_heads dsa_indexer_topk \
    expert_model_parallel_size expert_tensor_parallel_size ffn_hidden_size fp8_amax_history_len fp8_interval hidden_size kv_channels \
    kv_lora_rank linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim \
    mamba_head_dim mamba_num_groups mamba_num_heads mamba_state_dim max_seqlen_per_dp_cp_rank microbatch_group_size_per_vp_stage \
    min_offloaded_tensor_size mlp_chunks_for_prefill moe_deepep_num_sms moe_ffn_hidden_size moe_hybridep_num_sms moe_latent_size \
    moe_router_group_topk moe_router_num_groups moe_router_topk moe_router_topk_limited_devices moe_shared_expert_intermediate_size \
    mtp_num_layers num_attention_heads num_layers num_layers_at_end_in_bf16 num_layers_at_start_in_bf16 \
    num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage num_microbatches_with_partial_activation_checkpoints \
    num_moe_experts num_query_groups original_max_position_embeddings pipeline_model_parallel_size q_lora_rank qk_head_dim \
    qk_pos_emb_head_dim recompute_num_layers tensor_model_parallel_size v_head_dim virtual_pipeline_model_parallel_size \
    wgrad_deferral_limit";
pub(super) const OTHERS: &str = "_cpu_offloading_context activation_func activation_func_clamp_value attention_backend attention_dropout autocast_dtype beta_fast \
    beta_slow config_logger_dir cp_comm_type cuda_graph_scope dsa_indexer_loss_coeff embedding_init_method embedding_init_method_std \
    experimental_attention_variant finalize_model_grads_func fp4 fp4_quantizer_factory fp8 fp8_margin fp8_quantizer_factory \
    glu_linear_offset grad_scale_func grad_sync_func hidden_dropout hierarchical_context_parallel_sizes inference_sampling_seed \
    init_method init_method_std layernorm_epsilon linear_attention_freq moe_aux_loss_coeff moe_expert_capacity_factor \
    moe_input_jitter_eps moe_layer_freq moe_router_bias_update_rate moe_router_dtype moe_router_topk_scaling_factor moe_z_loss_coeff \
    mrope_section mscale mscale_all_dim mtp_loss_scaling_factor no_rope_freq no_sync_func offload_modules output_layer_init_method \
    param_sync_func params_dtype pipeline_dtype pipeline_model_parallel_comm_backend pipeline_model_parallel_layout qk_clip_alpha \
    qk_clip_threshold quant_recipe rope_type rotary_base rotary_percent rotary_scaling_factor softmax_scale symmetric_ar_type timers \
    window_attn_skip_freq window_size";

/// Fields with one of a few words.
pub(super) const WORDS: &[(&str, &[&str])] = &[
    ("cross_entropy_fusion_impl", &["native", "te"]),
    ("cuda_graph_impl", &["none", "local", "transformer_engine"]),
    ("fp4_recipe", &["nvfp4", "custom"]),
    ("fp8_amax_compute_algo", &["most_recent", "max"]),
    ("fp8_recipe", &["tensorwise", "delayed", "mxfp8", "blockwise", "custom"]),
    ("kitchen_attention_backend", &["sdpa", "fa"]),
    ("moe_flex_dispatcher_backend", &["deepep", "hybridep"]),
    (
        "moe_router_load_balancing_type",
        &["aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"],
    ),
    ("moe_router_score_function", &["softmax", "sigmoid"]),
    (
        "moe_token_dispatcher_type",
        &["allgather", "alltoall", "alltoall_seq", "flex"],
    ),
    ("moe_token_drop_policy", &["probs", "position"]),
    ("normalization", &["LayerNorm", "RMSNorm", "L2Norm"]),
    ("recompute_granularity", &["full", "selective"]),
    ("recompute_method", &["uniform", "block"]),
    (
        "recompute_modules",
        &[
            "core_attn",
            "moe_act",
            "layernorm",
            "mla_up_proj",
            "mlp",
            "moe",
            "shared_experts",
        ],
    ),
    ("softmax_type", &["vanilla", "off-by-one", "learnable"]),
    ("tp_comm_bootstrap_backend", &["nccl", "mpi", "gloo"]),
    (
        "transformer_impl",
        &["local", "transformer_engine", "inference_optimized"],
    ),
];
