//! The cases, a module for each point of poll-core's contract and of uv-core's behaviour.

pub mod asyncs;
pub mod changes;
pub mod closing;
pub mod conditions;
pub mod deregister;
pub mod embedding;
pub mod file_polls;
pub mod files;
pub mod handles;
pub mod memory;
pub mod metrics;
pub mod mistakes;
pub mod modes;
pub mod names;
pub mod operations;
pub mod panics;
pub mod pipes;
pub mod platform;
pub mod polls;
pub mod processes;
pub mod running;
pub mod scale;
pub mod signals;
pub mod silence;
pub mod streams;
pub mod surroundings;
pub mod tcp;
pub mod terminals;
pub mod time;
pub mod timeouts;
pub mod timers;
pub mod udp;
pub mod wakes;
pub mod watchers;
pub mod watching;
pub mod work;

/// The one list of all cases: `point group: case…;`. Calls the macro `$then` of
/// this crate with `$args` and the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __list_of_cases {
    ($then:ident $(, $args:expr)*) => {
        $crate::$then! { $($args),*;
            1 changes:
                register_reaches_the_next_wait
                modify_reaches_the_next_wait
                the_last_of_many_changes_counts
                many_changes_cost_one_call
                unchanged_sources_cost_nothing
                a_failed_register_changes_nothing
                a_failed_modify_changes_nothing;
            2 deregister:
                silences_at_once
                frees_the_number_for_reuse
                forgets_the_rest_of_a_batch
                forgets_changes_not_yet_flushed
                ignores_other_descriptors_of_the_file
                lets_go_of_the_file
                works_on_silent_and_spent_sources
                twice_is_not_found;
            3 modes:
                level_repeats_while_it_holds
                level_ends_with_the_condition
                oneshot_reports_once
                oneshot_sleeps_as_a_whole
                modify_rearms_a_spent_oneshot
                edge_reports_news_only
                modify_rearms_an_edge
                modes_can_change
                a_missing_edge_is_said_at_once;
            4 silence:
                from_the_start
                by_modify
                covers_hangup_and_error
                ends_with_an_interest
                does_not_end_a_wait;
            5 timeouts:
                zero_does_not_wait
                none_waits_for_ever
                are_never_early
                are_not_absurdly_late
                may_be_huge
                give_way_to_events
                survive_unreported_events
                end_at_a_signal;
            6 wakes:
                before_a_wait
                during_a_wait
                between_waits
                from_many_threads
                coalesce
                come_with_events
                none_is_lost
                after_the_backend_is_gone
                from_a_signal_handler
                cost_nothing_while_awake;
            7 mistakes:
                a_token_twice
                a_source_twice
                an_unknown_token
                a_stale_token
                a_closed_descriptor
                a_descriptor_closed_while_watched
                an_impossible_descriptor
                a_regular_file;
            8 operations:
                end_exactly_once
                never_complete_inline
                fail_with_the_error
                end_when_cancelled
                end_when_the_peer_goes
                run_beside_readiness
                are_refused_if_unsupported
                one_token_one_operation
                cancelling_nothing_is_not_found
                each_kind_does_its_work
                a_hundred_thousand_at_once
                cancelled_receives_lose_nothing
                messages_go_with_their_addresses;
            9 memory:
                is_filled_and_handed_back
                is_sent_as_it_was
                is_free_after_a_drop
                of_thousands_is_free_after_a_drop
                is_provided_and_recycled
                exhausted_groups_say_so
                messages_are_provided_with_their_addresses
                groups_can_be_withdrawn
                groups_are_refused_if_unsupported;
            10 conditions:
                data_is_readable
                room_is_writable
                a_full_peer_is_not_writable
                a_connection_makes_its_listener_readable
                a_made_connection_is_writable
                a_refused_connection_is_writable
                end_of_file_is_readable
                disconnect_shows_behind_unread_data
                a_reset_is_readable_and_writable
                a_hung_up_pipe_is_readable
                a_pipe_without_readers_is_writable
                urgent_data_is_priority
                urgent_data_is_silent_unasked
                datagrams_are_readable
                both_directions_come_in_one_event;
            11 scale:
                eleven_hundred_sources
                ten_thousand_sources
                changes_take_linear_time
                more_events_than_a_batch
                busy_sources_starve_nobody
                high_descriptor_numbers
                sparse_tokens;
            12 surroundings:
                made_here_used_there
                two_backends_watch_one_source
                nested_in_another_poller
                a_wake_shows_in_another_poller
                a_sleeper_outside_is_told_of_changes
                a_forked_child_carries_on
                a_parent_survives_its_child
                no_descriptor_is_left_behind
                time_only_goes_forward
                out_of_descriptors_is_an_error;
            13 running:
                ends_when_nothing_is_left
                returns_true_only_after_a_stop
                once_blocks_until_something_happens
                once_waits_for_the_next_timer
                once_waits_for_something_to_tell
                a_quiet_end_ends_the_wait
                once_does_not_block_after_deferred_callbacks
                once_does_not_block_after_an_idle_callback
                nowait_does_not_block
                once_and_nowait_run_timers_once
                phases_come_in_order
                timers_come_last_in_once_and_nowait
                a_dead_loop_runs_nothing
                an_unreferenced_timer_does_not_fire_alone
                a_stop_before_a_run_is_used_up_by_it
                a_stop_in_a_callback_ends_the_iteration
                a_run_within_a_run_is_refused
                deferred_callbacks_run_in_order
                deferred_callbacks_can_defer
                deferring_for_ever_starves_nobody
                an_interrupted_poll_waits_for_the_rest
                a_wake_for_nothing_waits_for_the_rest
                does_not_block_with_something_to_do
                blocks_until_the_next_timer
                no_call_runs_a_callback_inline
                one_program_leaves_one_trace;
            14 time:
                stands_still_until_the_poll
                stands_still_after_the_poll
                moves_with_every_poll
                moves_before_the_timers
                moves_when_updated
                moves_when_the_loop_is_run
                is_not_moved_by_timers
                the_clock_goes_on_meanwhile;
            15 handles:
                begin_inactive_and_referenced
                references_are_flags
                keep_the_loop_alive_if_active_and_referenced
                references_of_closing_ones_do_not_count
                requests_keep_the_loop_alive
                a_walk_goes_in_order_of_making
                a_walk_includes_closing_ones
                a_walk_tolerates_changes
                stale_keys_are_errors
                keys_are_not_confused
                kinds_have_names
                lists_show_flags
                a_busy_loop_does_not_close
                a_closed_loop_gives_its_backend_back
                a_dropped_loop_drops_everything
                descriptors_are_those_behind_them
                buffers_have_sizes;
            16 closing:
                calls_back_in_reverse_order
                never_calls_back_inline
                comes_after_the_check_watchers
                from_a_close_callback_waits_an_iteration
                stops_at_once
                twice_is_an_error
                keeps_the_loop_alive
                works_in_the_handles_own_callback
                needs_no_callback
                starting_a_closing_handle_is_an_error
                operations_in_flight_end_before_it;
            17 timers:
                are_never_early
                are_not_absurdly_late
                fire_in_order
                thousands_fire_in_order
                a_zero_timeout_waits_for_the_next_pass
                may_be_huge
                stopped_by_an_earlier_one_do_not_fire
                restarted_by_an_earlier_one_wait
                start_anew_when_started_again
                are_scheduled_before_their_callbacks
                repeats_are_not_made_up_for
                repeat_until_they_are_stopped
                a_new_repeat_counts_from_the_round_after
                again_without_a_start_is_an_error
                again_without_a_repeat_does_nothing
                again_starts_with_the_repeat_time
                due_in_counts_from_the_loop_time
                call_what_they_were_started_with_last
                with_one_callback_are_apart
                may_be_made_and_started_at_once
                have_any_number_of_callbacks;
            18 watchers:
                run_once_an_iteration
                run_the_latest_first
                started_by_a_sibling_wait_an_iteration
                stopped_by_a_sibling_do_not_run
                may_stop_those_that_have_run
                keep_their_callback_when_started_again
                may_start_themselves_anew
                let_go_of_their_callback_when_stopped
                run_in_order_by_the_thousand
                only_idle_ones_keep_the_poll_from_blocking;
            19 asyncs:
                sends_coalesce
                sends_wait_for_the_loop_to_run
                a_send_in_the_callback_makes_another_call
                are_called_in_the_order_they_were_made
                wake_a_loop_that_waits
                no_send_is_lost
                from_a_signal_handler
                sends_to_a_closed_handle_are_errors
                a_close_amid_sends_is_the_last_word
                keep_the_loop_unless_unreferenced
                one_may_close_another
                channels_deliver_all_in_order
                channels_wake_the_loop_once_for_many
                channels_take_what_their_callback_sends
                channels_closed_in_mid_batch_deliver_no_more
                channels_that_are_closed_give_values_back
                channels_take_values_of_any_size;
            20 polls:
                tell_what_was_asked_for
                repeat_while_it_holds
                starting_again_replaces_all
                starting_for_nothing_stops
                a_stopped_poll_is_not_called
                a_closed_poll_is_not_called
                a_reused_number_is_another_source
                a_descriptor_has_one_poll
                a_regular_file_is_refused
                descriptors_become_non_blocking
                a_half_close_is_a_disconnect
                urgent_data_is_prioritized
                a_hang_up_is_all_that_was_asked_for
                an_error_stops_the_poll
                the_owner_is_kept_until_closed
                one_may_close_itself
                a_thousand_at_once
                silent_polls_do_not_disturb_timers;
            21 signals:
                wake_a_loop_that_waits
                are_counted
                reach_every_handle
                reach_every_loop
                come_from_any_thread
                one_shots_end_with_the_first
                one_shots_and_others_mix
                one_shots_are_told_last
                starting_again_swaps_the_callback
                another_number_moves_the_handle
                the_last_stop_restores_what_was_before
                one_may_stop_or_close_itself
                a_closed_handle_is_not_told
                earlier_signals_are_not_told
                a_one_shot_may_start_anew
                one_shots_alone_let_the_second_through
                are_told_last_of_a_batch
                handlers_leave_system_calls_alone
                those_of_profilers_wait_for_the_poll
                impossible_numbers_are_refused
                keep_the_loop_unless_unreferenced;
            22 work:
                results_come_back
                results_have_any_size
                panics_are_errors
                callbacks_wait_for_the_loop
                queued_work_can_be_cancelled
                running_work_cannot_be_cancelled
                starts_in_order
                no_thread_sleeps_while_work_waits
                slow_work_leaves_threads
                pools_are_independent
                pools_say_what_they_have
                threads_have_a_name
                work_ends_with_its_loop
                a_dropped_pool_runs_what_is_queued
                ten_thousand_jobs
                the_environment_sets_the_size;
            23 metrics:
                iterations_are_counted
                events_are_counted
                idle_time_is_zero_unless_measured
                idle_time_grows_while_the_loop_blocks
                idle_time_includes_the_wait_under_way
                polls_that_do_not_block_are_not_idle;
            24 panics:
                in_a_timer
                in_an_idle
                in_a_prepare
                in_a_check
                in_an_async
                in_a_channel
                in_a_poll
                in_a_work_callback
                in_a_close_callback
                in_a_deferred_callback
                leave_the_rest_of_a_wait
                leave_a_loop_that_drops
                in_a_signal;
            25 embedding:
                the_timeout_says_how_long
                loops_in_many_threads
                no_descriptor_is_left_behind
                another_poller_drives_the_loop
                a_loop_runs_inside_another
                each_event_wakes_another_poller
                what_a_timer_starts_wakes_another_poller
                an_echo_is_driven_from_outside
                requests_end_outside
                a_forked_child_carries_on
                what_came_before_a_fork_is_the_parents
                work_in_flight_is_cancelled_in_a_child
                a_connect_goes_on_in_a_child
                reads_go_on_in_a_child
                listeners_and_receivers_go_on_in_a_child
                writes_go_on_in_a_child
                files_in_flight_are_cancelled_in_a_child
                a_parent_survives_careless_children;
            26 streams:
                reads_lend_what_arrives
                the_end_of_file_stops_reading
                the_end_of_file_closes_nothing
                an_error_ends_both_directions
                reading_twice_is_an_error
                reading_stops_at_once
                reading_stops_from_outside
                a_stopped_reader_lets_the_loop_sleep
                what_comes_while_stopped_is_kept
                reading_starts_anew_in_its_callback
                what_is_left_of_much_is_told
                much_on_many_comes_whole
                urgent_data_holds_nothing_up
                a_busy_reader_starves_nobody
                pulled_reads_are_served_in_order
                pulled_reads_take_no_more_than_asked
                pulled_reads_all_see_the_end
                late_memory_comes_back_exactly_once
                late_memory_may_be_missing
                late_memory_may_be_for_nothing
                what_is_no_connection_is_refused
                writes_call_back_in_order
                writes_hand_their_buffers_back
                the_queue_size_is_what_has_not_left
                trying_to_write_never_queues
                nothing_overtakes_what_is_queued
                queued_writes_can_be_cancelled
                a_half_written_write_can_be_cancelled
                a_write_under_way_can_be_cancelled
                one_of_several_writes_can_be_cancelled
                a_cancel_may_come_too_late
                a_close_follows_a_cancel
                a_read_under_way_can_be_cancelled
                a_read_outlives_a_change_of_ways
                writes_to_a_lost_peer_fail
                a_shutdown_waits_for_the_queue
                a_shutdown_happens_once
                a_shutdown_leaves_reading
                a_blocking_stream_writes_all_at_once
                batches_keep_the_order
                a_batch_leaves_before_an_end
                a_batch_leaves_before_the_loop_returns
                a_full_stream_takes_no_more
                a_shutdown_follows_a_batch_into_the_next_run
                batches_to_a_lost_peer_end
                a_batched_echo_comes_back_whole
                an_echo_comes_back_whole
                an_echo_takes_three_calls
                batched_answers_share_their_calls
                closing_cancels_what_waits
                may_close_in_every_callback
                may_close_while_connecting
                requests_keep_the_loop_alive
                a_closed_stream_is_not_told
                a_dropped_loop_drops_what_was_queued
                thousands_in_flight_end_with_their_loop
                a_panic_leaves_the_rest
                a_panic_in_a_reader_stops_it
                a_panic_in_a_read_leaves_those_behind
                a_panic_with_late_memory_stops_reading
                a_panic_in_a_shutdown_leaves_reading
                idle_streams_let_the_loop_sleep;
            27 tcp:
                addresses_are_known
                an_address_in_use_is_told_where_it_matters
                impossible_addresses_are_refused
                link_local_addresses_find_their_link
                ipv6_takes_ipv4_unless_told_not_to
                an_address_is_free_after_its_connections
                several_share_a_reused_port
                options_reach_the_socket
                a_handle_takes_one_socket
                pairs_are_connected
                a_reset_is_no_orderly_end
                each_connection_calls_back_once
                many_who_wait_are_accepted_together
                a_busy_loop_accepts_as_much_as_it_serves
                connections_wait_until_they_are_taken
                requests_to_accept_are_served_in_order
                a_listener_that_fails_tells_everybody
                a_request_takes_the_connection_that_waits
                a_quiet_listener_takes_nothing_unasked
                listening_again_changes_the_callback
                a_closed_listener_turns_its_peers_away
                connecting_is_a_request
                nobody_listening_is_told_by_the_callback
                writes_wait_for_the_connection
                writes_without_a_connection_are_cancelled
                a_close_cancels_the_connect
                a_connect_to_nowhere_can_be_given_up
                no_address_in_particular_is_this_machine
                connects_are_given_up_by_the_hundred
                an_address_of_another_family_is_an_error
                connects_and_accepts_meet
                a_panic_in_accepting_leaves_the_next
                a_panic_in_listening_loses_nobody
                a_panic_in_a_connect_leaves_the_writes
                a_peer_that_resets_harms_nobody_else
                a_peer_may_be_gone_before_it_is_accepted
                a_peer_that_never_reads_is_waited_for
                a_large_write_goes_in_pieces
                a_write_of_a_gibibyte_goes_in_pieces
                a_thousand_connections_at_once
                ten_thousand_connections_at_once
                out_of_descriptors_turns_peers_away
                hardship_leaves_no_descriptor
                no_descriptor_is_left_behind;
            28 udp:
                a_socket_is_made_when_it_is_needed
                an_address_in_use_is_refused
                an_address_can_be_shared
                a_port_can_be_spread_over_sockets
                an_ipv6_socket_talks_ipv4
                ipv6_only_is_ipv6_only
                a_connected_socket_has_one_peer
                connecting_has_rules
                disconnecting_undoes_connecting
                an_existing_socket_can_be_used
                are_active_while_there_is_work
                receiving_twice_is_refused
                closing_frees_the_port
                closed_handles_do_nothing
                sends_go_at_once_and_are_told_later
                the_queue_is_counted_until_the_callback
                buffers_come_back
                an_error_is_that_of_one_datagram
                sends_are_told_before_the_close
                try_send_sends_now_or_never
                try_send_many_skips_nothing
                try_send_many_stops_at_what_fails
                sending_on_starves_nobody
                answers_keep_their_order
                answers_before_a_close_are_sent
                a_panic_takes_no_sends_with_it
                handles_send_to_each_other
                what_waits_goes_in_order
                an_error_of_what_waits_is_that_of_one
                try_send_does_not_overtake
                closing_cancels_what_waits
                closing_cancels_what_is_in_flight
                datagrams_come_with_their_sender
                empty_datagrams_are_datagrams
                long_datagrams_are_truncated
                the_largest_datagram_comes_whole
                several_come_with_one_event
                a_flood_starves_nobody
                stopping_in_the_callback_loses_nothing
                closing_in_the_callback_ends_it
                a_callback_may_replace_itself
                a_panic_loses_one_datagram_at_most
                lent_memory_stays_as_it_is
                options_want_a_socket
                options_reach_the_socket
                options_of_ipv6_reach_the_socket
                members_of_a_group_get_its_datagrams
                members_of_an_ipv6_group_get_its_datagrams
                sources_of_a_group_are_told_apart
                a_refusal_reaches_a_connected_socket
                reports_of_the_network_reach_the_receiver
                reports_are_told_once
                congestion_is_told_if_asked_for
                segments_are_cut_and_put_together
                any_callback_may_close
                what_waited_may_close
                thousands_of_datagrams
                a_ping_pong_takes_three_calls_a_datagram
                more_than_fits_in_memory_comes
                what_comes_while_stopped_is_told_later
                closing_ends_what_is_in_flight
                a_loop_may_be_dropped_in_flight
                answers_with_callbacks_take_few_calls
                no_descriptor_is_left_behind;
            29 names:
                digits_are_their_own_answer
                hints_choose
                a_service_alone_is_of_this_machine
                localhost_is_found
                the_hosts_file_is_read
                unknown_names_are_errors
                impossible_questions_are_refused
                unicode_becomes_ascii
                addresses_have_names
                lookups_are_requests
                waiting_lookups_can_be_cancelled
                lookups_leave_threads_for_others;
            30 platform:
                random_bytes_fill_the_buffer
                waiting_random_requests_can_be_cancelled
                too_many_random_bytes_are_refused
                processors_are_known
                memory_adds_up
                use_is_counted
                the_system_has_names
                interfaces_have_addresses
                users_and_groups_are_found
                a_title_is_shown
                priorities_can_be_lowered
                threads_can_be_told_apart
                temporary_files_go_where_they_are_told;
            31 terminals:
                lines_come_when_they_end
                keys_come_as_they_are_typed
                a_wire_changes_nothing
                the_callers_descriptor_stays_as_it_is
                a_master_is_a_terminal_too
                the_window_has_a_size
                what_nobody_reads_waits
                directions_are_those_of_the_descriptor
                a_terminal_has_no_peers
                the_mode_is_restored
                several_handles_restore_the_first_mode
                a_reset_restores_all_modes
                the_end_of_the_program_restores_the_mode
                a_hang_up_is_the_end
                any_callback_may_close
                no_descriptor_is_left_behind
                consoles_are_read
                consoles_are_written
                what_is_no_terminal_is_refused
                descriptors_are_told_apart;
            32 pipes:
                names_are_known
                abstract_names_are_no_files
                impossible_names_are_refused
                a_name_in_use_is_refused
                the_path_goes_with_the_handle
                access_can_be_widened
                listening_needs_a_name
                connecting_is_a_request
                nobody_there_is_told_by_the_callback
                writes_wait_for_the_connection
                a_close_cancels_the_connect
                connections_are_accepted_in_order
                a_full_backlog_is_told
                as_many_wait_as_was_said
                pairs_go_both_ways
                an_ended_pipe_is_answered
                one_way_pipes_go_one_way
                a_reader_that_goes_breaks_the_pipe
                an_echo_comes_back_whole
                an_echo_takes_three_calls_a_message
                no_descriptor_is_left_behind
                a_descriptor_says_what_it_can_do
                files_are_refused
                a_handle_takes_one_descriptor
                raw_pairs_block_or_not
                standard_streams_stay_open
                handles_arrive_with_their_bytes
                several_handles_go_with_one_write
                handles_keep_their_order
                handles_go_once_with_a_large_write
                listeners_can_be_passed
                a_closed_handle_is_not_passed
                a_cancelled_write_passes_nothing
                passing_has_rules
                an_immediate_write_passes_handles
                what_is_not_taken_is_closed_with_the_pipe
                other_descriptors_can_be_taken
                pulled_reads_get_handles
                handles_reach_another_process
                out_of_descriptors_is_told_of_handles;
            33 processes:
                codes_are_told
                signals_are_told
                the_end_is_told_once_and_later
                can_be_killed
                the_dead_cannot_be_killed
                can_be_killed_by_number
                can_be_killed_while_starting
                many_run_at_once
                keep_the_loop_unless_unreferenced
                a_panic_leaves_the_rest
                a_missing_program_is_told_at_once
                what_may_not_be_run_is_told
                what_is_no_program_is_told
                a_missing_directory_is_told
                out_of_descriptors_is_told
                what_cannot_be_passed_on_is_refused
                users_need_the_right_to_change
                arguments_arrive_as_they_are
                the_own_name_can_be_another
                the_environment_is_inherited_or_changed
                names_are_found_by_the_childs_path
                the_directory_is_the_childs
                signals_are_as_in_a_new_process
                detached_children_lead_a_session
                users_and_groups_change
                flags_for_windows_do_no_harm
                standard_streams_are_the_null_device
                files_are_inherited
                standard_streams_are_inherited
                there_can_be_more_than_three
                descriptors_may_change_places
                nothing_else_is_inherited
                streams_are_inherited
                a_child_sends_back_what_it_is_sent
                each_output_is_a_pipe_of_its_own
                a_pipe_may_go_both_ways
                a_killed_child_ends_its_pipes
                no_child_is_no_pipe
                impossible_pipes_are_refused
                ends_block_unless_asked_not_to
                closing_leaves_the_child_and_no_zombie
                a_dropped_loop_leaves_no_zombie
                no_descriptor_is_left_behind
                children_of_others_are_left_alone
                a_stolen_end_is_an_error
                a_child_is_a_handle_like_others
                the_signal_is_shared
                a_forked_loop_has_no_children;
            34 watching:
                entries_are_told_by_name
                a_new_name_is_told_with_the_old
                a_file_is_told_alone
                several_watch_one_path
                a_handle_watches_one_path
                the_past_is_not_told
                a_callback_may_end_it
                a_closed_handle_is_told_nothing
                keep_the_loop_unless_unreferenced
                a_removed_directory_is_told
                a_panic_leaves_the_rest
                thousands_of_changes
                directories_below_are_watched
                new_directories_are_watched
                no_file_of_a_busy_tree_is_missed
                moved_directories_have_new_names
                removed_directories_may_come_back
                a_moved_root_is_told
                a_removed_root_may_come_back
                links_are_not_followed
                lost_changes_are_told
                out_of_watches_is_an_error
                out_of_descriptors_is_an_error
                no_descriptor_is_left_behind
                a_forked_child_watches_on;
            35 file_polls:
                what_does_not_change_is_not_told
                the_time_of_a_look_is_a_part_of_the_interval
                changes_are_told
                rights_are_a_part_of_it
                errors_are_told_once
                may_stop_and_start_anew
                a_closed_poll_is_not_told
                polls_keep_the_loop_unless_unreferenced
                mistakes_are_errors
                a_panic_stops_the_poll;
            36 files:
                what_is_written_can_be_read
                an_offset_leaves_the_position
                there_is_nothing_beyond_the_end
                offsets_may_be_huge
                lists_are_filled_in_order
                long_lists_are_written_whole
                more_than_two_gigabytes_at_once
                empty_buffers_move_nothing
                appending_goes_to_the_end
                short_writes_are_continued
                buffers_come_back_from_failures
                files_are_cut_and_flushed
                names_are_made_and_removed
                a_rename_replaces
                what_is_missing_is_not_found
                a_name_in_use_is_refused
                directories_are_no_files
                long_names_are_refused
                names_are_in_any_script
                names_need_not_be_text
                a_nul_is_refused_at_once
                links_are_read_and_resolved
                links_in_a_circle_are_an_error
                junctions_lead_to_directories
                access_can_be_asked_for
                every_way_of_asking_agrees
                special_files_have_kinds
                times_are_set_or_left
                times_of_links_are_their_own
                permissions_are_set
                new_files_have_their_mode
                owners_are_set_by_root
                file_systems_tell_their_size
                entries_come_by_name
                entries_come_in_batches
                batches_may_be_asked_for_at_once
                a_directory_in_use_stays_open
                made_up_names_are_new
                templates_have_an_end
                copies_are_the_same
                a_copy_onto_itself_changes_nothing
                clones_are_made_or_refused
                half_a_copy_is_removed
                files_are_sent_in_parts
                files_are_sent_through_pipes
                a_full_device_is_told
                a_full_disk_takes_what_fits
                what_is_forbidden_is_refused
                out_of_descriptors_is_told
                no_descriptor_is_left_behind
                callbacks_come_once_and_later
                operations_follow_each_other
                both_twins_agree
                hundreds_at_once
                what_has_not_begun_can_be_cancelled
                a_cancel_prevents_or_is_too_late
                what_has_begun_cannot_be_cancelled
                what_is_in_memory_is_read_at_once
                many_reads_on_one_thread_keep_their_order
                reads_of_two_loops_on_one_thread
                a_file_in_use_stays_open
                a_callback_may_close_its_file
                a_loop_may_go_before_its_operations
                a_panic_is_that_of_one_callback;
        }
    };
}
