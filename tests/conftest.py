"""What every test shares: the place of the real recordings, and the check that nothing is left running."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# The tests of several workers share the cores; numpy's own threads would only wait for each other. Said before numpy
# is imported, and to the programs that are started here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.support.prepared import Prepared

# No test depends on how fast the machine is. And `make test` tries the same examples each time, so that no change is
# refused for a find that has nothing to do with it. They are few; `make search` looks for new ones. No test says how
# many examples it needs: that would hold for the search too.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _ANY_SPEED, derandomize=True, max_examples=30)
settings.register_profile("search", _ANY_SPEED, max_examples=1000)
settings.load_profile("same")

SHARED = Path(os.environ.get("PMTPY_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """Let programs that are started here obey signals: in the background or under nohup we inherit that we do not."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of real GPU recordings, or a skip that says why."""
    path = SHARED / "data" / "gpu-traces"
    if not path.is_dir():
        pytest.skip(f"the real recordings are not at {path}; set PMTPY_SHARED to the folder that holds them")
    return path


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Begin the command line in processes that have imported already."""
    interpreter = Prepared(tmp_path_factory.mktemp("prepared"))
    yield interpreter
    interpreter.close()


# Tests that take more than a second or two of a core, by file: simulations of many regions, verbs that record for
# seconds, the site. `make test` leaves them, and the wheel on other Pythons, to `make slow`; continuous integration
# runs both.
SLOW = {
    "analysis/characterisation/test_characterise.py": {
        "test_a_meter_of_another_time_is_declined",
        "test_a_meter_that_lost_samples_under_the_load_is_declined",
        "test_a_meter_that_recorded_a_moment_is_declined",
        "test_a_meter_without_load_stamps_gives_everything_but_the_offset",
        "test_a_sharp_step_leaves_the_kernel_ambiguous_but_gives_gradient_and_honest_energies",
        "test_a_step_gives_kind_rise_and_delay",
        "test_load_stamps_alone_give_the_kernel_but_no_gradient",
        "test_the_recorded_ampere_square_wave_is_reproduced",
        "test_the_recorded_ampere_step_is_reproduced",
        "test_the_recorded_kepler_step_is_reproduced",
    },
    "analysis/characterisation/test_registers.py": {
        "test_clocks_that_are_no_multiples_have_no_phase_and_what_stands_still_no_clock",
        "test_lags_and_gains_are_told_against_each_other",
        "test_of_a_counter_the_step_and_the_age_of_the_count_are_told",
        "test_phases_and_rates_of_clocks_are_told_against_each_other",
    },
    "analysis/characterisation/test_fit.py": {
        "test_a_kernel_of_none_of_the_families_is_not_named",
        "test_noise_that_lasts_is_no_lack_of_fit",
        "test_the_right_family_is_not_refuted",
    },
    "analysis/characterisation/test_in_step.py": {
        "test_a_load_in_step_is_never_confidently_wrong",
        "test_a_sensor_that_always_cuts_the_same_edge_is_not_taken_for_one_of_another_gain[425]",
    },
    "analysis/characterisation/test_kernel.py": {
        "test_a_gradual_step_does_not_tell_a_boxcar_from_a_one_pole",
        "test_a_load_in_a_simple_ratio_to_the_updates_is_never_confidently_wrong",
        "test_a_load_that_shows_few_phases_leaves_the_width_open_though_the_phase_seems_to_wander",
        "test_of_a_fast_square_a_short_window_before_a_low_pass_takes_nothing_from_its_time_constant",
        "test_one_step_whose_edges_few_readings_see_leaves_lag_and_clock_rate_as_open_as_they_are",
        "test_a_window_and_its_alias_under_a_square_wave_are_told_apart_only_by_a_meter",
        "test_intervals_cover_the_truth_as_often_as_they_say",
        "test_intervals_from_one_step_hold_on_boards_that_are_off_their_line",
        "test_kernels_from_a_twentieth_of_a_period_to_fifteen_are_found_and_named",
        "test_the_boxcar_of_a_recorded_ampere_card",
        "test_the_one_pole_of_a_recorded_kepler_card",
        "test_the_running_mean_of_a_recorded_ampere_card_holds_eleven_updates",
    },
    "analysis/characterisation/test_means.py": {
        "test_a_finer_meter_knows_a_kernel_better",
        "test_a_kernel_is_found_within_its_interval_whatever_the_meters_rows",
        "test_one_clock_ties_the_kernels_end_to_the_readings_without_a_load",
    },
    "analysis/characterisation/test_step.py": {
        "test_a_sensor_that_takes_seconds_is_at_its_plateau_when_the_block_ends",
        "test_each_kind_of_response_is_recognised[model0-instant-0.08]",
        "test_each_kind_of_response_is_recognised[model2-linear-0.8]",
        "test_each_kind_of_response_is_recognised[model3-logarithmic-0.1208]",
        "test_recorded_cards_respond_as_published",
    },
    "analysis/characterisation/test_unmetered.py": {
        "test_another_power_before_and_after_the_load_does_not_bend_the_kernel",
        "test_of_offsets_whole_periods_apart_the_nearest_to_zero_is_taken_and_this_is_said",
        "test_power_that_sags_is_in_the_interval_where_few_phases_are_seen",
        "test_the_power_at_rest_tells_a_window_from_its_aliases_under_a_regular_load",
        "test_what_load_stamps_are_worth_is_in_the_interval",
    },
    "analysis/clocking/test_live_updates.py": {
        "test_polls_of_a_known_period_tell_when_it_was_renewed",
    },
    "analysis/clocking/test_polling.py": {
        "test_the_period_is_the_sensors_and_not_the_rhythm_of_the_rows",
    },
    "analysis/clocking/test_updates.py": {
        "test_a_wandering_phase_is_followed",
        "test_an_honest_minute_finds_the_period_to_a_fiftieth_of_a_percent",
        "test_half_of_the_period_is_not_named_where_the_phase_jumps",
        "test_intervals_cover_the_truth_as_often_as_they_say",
        "test_periods_of_recorded_cards",
        "test_polls_that_pause_longer_than_the_period_are_declined",
    },
    "analysis/characterisation/test_align.py": {
        "test_stated_intervals_cover_the_truth",
    },
    "analysis/comparison/test_compare.py": {
        "test_a_load_in_step_with_the_updates_hides_the_window",
        "test_a_load_that_only_repeats_moves_no_lag_by_whole_periods",
        "test_a_mean_over_a_second_has_the_gain_of_the_sensor_and_not_that_of_its_swing",
        "test_a_meter_on_another_clock_is_moved_and_a_mark_keeps_its_place_in_the_load",
        "test_a_reference_in_milliwatts_is_said_to_be_in_other_units",
        "test_energies_of_a_step_of_the_rtx_3090_are_those_published_for_it",
        "test_energies_that_count_on_over_a_hole_are_not_taken_for_power_of_its_own",
        "test_offset_and_rate_of_a_clock_are_of_an_instant_that_is_told",
        "test_rows_stamped_by_polls_in_step_do_not_make_the_period_certain",
        "test_what_a_recording_does_not_know_bends_neither_gain_nor_energies",
        "test_the_average_of_the_rtx_4000_ada_runs_half_a_second_behind",
        "test_the_k40m_is_a_low_pass_of_55_ms",
        "test_the_rtx_3090_averages_over_100_ms_and_shows_95_percent",
        "test_without_a_calibration_no_difference_is_called_significant",
    },
    "analysis/energy/test_small_loads.py": {
        "test_a_region_that_begins_in_a_block_and_one_of_a_tenth_of_a_second",
        "test_three_kinds_in_turn_far_from_multiples_of_the_period",
    },
    "analysis/energy/test_energy.py": {
        "test_03_s_of_a_slow_one_pole_are_known_to_1_percent",
        "test_a_fast_load_is_not_taken_for_noise_at_the_ends_of_an_inverted_region",
        "test_a_known_start_gives_the_whole_energy_of_a_step_in_any_phase",
        "test_a_long_interval_is_reconstructed_at_its_ends_and_added_up_between",
        "test_a_mean_of_part_time_readings_knows_no_step_better_than_what_they_leave_out",
        "test_a_periodic_load_of_any_period_and_duty_has_its_energy",
        "test_few_phases_of_a_load_that_beats_with_the_sensor_are_in_the_interval",
        "test_intervals_of_corrected_energies_cover_the_truth",
        "test_updates_that_are_missing_while_the_power_rises_are_in_the_interval",
        "test_windows_of_a_recorded_square_wave_hold_the_meter_with_the_kernel_that_a_step_gave",
    },
    "analysis/energy/test_ends.py": {
        "test_a_load_in_step_and_a_phase_that_jumps_leave_no_wrong_energy_behind_its_interval",
    },
    "analysis/energy/test_polled_in_step.py": {  # all but the quickest of each
        "test_a_phase_that_readings_contradict_is_not_believed[sees the top alone-0.05]",
        "test_a_phase_that_readings_contradict_is_not_believed[sees the top alone-0.1]",
        "test_a_phase_that_readings_contradict_is_not_believed[sees the top for long-0.1]",
        "test_a_phase_that_readings_contradict_is_not_believed[slides-0.05]",
        "test_a_phase_that_readings_contradict_is_not_believed[slides-0.1]",
        "test_a_sensor_that_sees_all_does_not_say_that_a_load_uses_nothing[0.05]",
        "test_a_sensor_that_sees_all_does_not_say_that_a_load_uses_nothing[0.1]",
    },
    "analysis/energy/test_wrong_stamps.py": {
        "test_blocks_of_many_powers_are_in_the_interval_though_their_stamps_are_right",
        "test_power_that_was_not_stamped_is_as_likely_where_nobody_looks[0.12]",
    },
    "analysis/energy/test_standing.py": {
        "test_what_the_power_was_while_the_register_stood_is_not_known",
    },
    "analysis/energy/test_wander.py": {
        "test_intervals_hold_though_the_phase_wanders",
    },
    "analysis/signal/test_clock_fit.py": {
        "test_a_meter_that_drifts_by_more_than_a_block_of_a_fast_load_is_followed",
    },
    "analysis/transfer/test_transfer.py": {
        "test_intervals_hold_the_truth_of_unseen_configurations",
        "test_one_curve_for_all_fails_as_published",
        "test_transfer_on_recorded_results_meets_its_demand",
    },
    "analysis/uncertainty/test_uncertainty.py": {
        "test_stated_intervals_cover_the_truth_as_often_as_they_say",
    },
    "backends/amdsmi/test_amdsmi.py": {
        "test_any_answer_is_a_possible_number_or_none",
    },
    "backends/nvml/test_reading.py": {
        "test_a_stuck_counter_is_named_and_leaves_the_power_beside_it_whole",
        "test_registers_that_are_renewed_in_the_midst_of_a_call_are_read_again",
        "test_the_counter_keeps_the_contract_and_tells_the_truth",
    },
    "backends/nvml/test_samples.py": {
        "test_samples_keep_the_contract_and_tell_the_truth_of_a_constant",
    },
    "backends/occ/test_source.py": {
        "test_a_virtual_sensor_counts_between_rare_readings",
    },
    "backends/rapl/test_rapl.py": {
        "test_any_reading_schedule_within_the_deadline_gives_the_truth",
    },
    "calibration/test_device_session.py": {
        "test_a_recording_is_read_back_with_everything_that_was_shown",
        "test_the_report_finds_the_sensor_that_was_emulated",
    },
    "calibration/test_energy.py": {
        "test_a_kernel_that_was_left_open_makes_the_interval_wider_and_no_refusal",
    },
    "cli/test_characterise_verb.py": {
        "test_a_counter_is_characterised_by_its_moves",
        "test_a_dump_of_ours_is_characterised_by_its_first_power_poll_by_poll",
        "test_a_virtual_device_with_a_load_of_its_own_has_no_stamps",
        "test_a_virtual_gpu_is_found_to_be_what_it_is",
    },
    "cli/test_compare_verb.py": {
        "test_channels_of_one_file_share_its_clock",
        "test_recordings_are_compared_on_clocks_that_are_fitted",
        "test_virtual_sensors_are_compared_with_each_other_and_with_the_truth",
        "test_what_was_seen_of_a_sensor_lost_half_way_is_still_compared",
    },
    "conformance/test_every_backend.py": {
        "test_all_sensors_of_one_world_agree_with_the_truth_and_each_other",
    },
    "docs/test_pages.py": {
        "test_a_page_can_be_followed[docs/bench.md]",
        "test_a_page_can_be_followed[docs/calibrate.md]",
        "test_a_page_can_be_followed[docs/characterise.md]",
        "test_a_page_can_be_followed[docs/command-line.md]",
        "test_a_page_can_be_followed[docs/compare.md]",
        "test_a_page_can_be_followed[docs/gallery.md]",
    },
    "docs/test_site.py": {
        "test_every_public_name_is_in_the_reference",
    },
    "integrations/test_kernel_tuner.py": {
        "test_a_board_and_a_gpus_own_sensor_are_measured_by_one_method_over_one_stretch",
        "test_a_configuration_without_energy_does_not_end_the_tuning_and_the_others_are_measured",
        "test_kernel_tuners_own_observer_for_pmt_runs_unmodified",
        "test_kernel_tuners_own_observer_for_powersensor3_runs_unmodified",
        "test_our_observer_sees_the_whole_kernel",
        "test_several_sensors_are_summed_each_part_once",
        "test_the_example_of_the_page_runs_as_printed",
        "test_the_continuous_mode_gives_the_energy_of_one_kernel",
    },
    "lab/test_cards.py": {
        "test_a_card_is_found_and_another_recording_of_it_corrected",
        "test_a_log_that_ends_before_the_load_begins_gives_no_gradient",
        "test_a_meter_of_another_day_is_declined",
        "test_a_part_time_sensor_is_corrected_under_a_load_that_beats_with_it",
    },
    "lab/test_certify.py": {
        "test_a_virtual_card_is_certified_whole",
        "test_what_noise_alone_may_do_is_no_failure",
        "test_where_a_meter_is_too_coarse_the_stamps_of_the_load_tell_the_kernel",
    },
    "cli/test_procedures_verb.py": {
        "test_registers_of_a_card_beside_each_other",
        "test_registers_of_a_recording_beside_each_other",
    },
    "lab/test_procedures.py": {
        "test_registers_of_two_sensors_are_recorded_together_under_one_load",
        "test_a_virtual_occ_samples_as_often_as_that_of_the_study",
        "test_of_several_stamped_registers_the_updates_of_one_are_told",
        "test_two_cards_of_one_node_have_phases_of_their_own",
    },
    "live/test_notebook.py": {
        "test_a_comparison_shows_itself_with_foreign_text_escaped",
    },
    "plotting/test_comparison.py": {
        "test_panels_show_the_greatest_rise_and_fall_and_are_framed_in_the_whole",
    },
    "plotting/test_interactive.py": {
        "test_single_samples_are_drawn_of_a_recording_of_ordinary_length_and_of_a_part_of_a_long_one",
    },
    "regions/test_recorded_regions.py": {
        "test_what_is_recorded_is_as_uncertain_as_what_was_measured",
    },
    "regions/test_uncertainty_live.py": {
        "test_a_profile_with_a_kernel_corrects_live_regions_of_a_slow_sensor",
        "test_regions_beside_a_starved_poller_hold_the_truth",
        "test_stated_intervals_of_live_regions_hold_the_truth",
        "test_the_first_region_of_a_sensor_that_was_just_opened_holds_the_truth",
    },
    "regions/test_uncertainty_stamped.py": {
        "test_a_load_in_step_is_known_no_better_than_the_instants_of_its_readings",
        "test_a_long_region_costs_no_more_than_its_ends",
        "test_a_profile_whose_window_is_off_by_what_it_states_holds_the_truth",
        "test_a_region_that_is_the_load_begins_where_it_does",
        "test_a_region_too_short_to_tell_the_levels_says_so_and_is_as_uncertain",
        "test_intervals_of_stamped_regions_hold_over_loads_and_lengths",
        "test_regions_of_a_loop_learn_from_each_other",
        "test_stamps_tell_of_readings_of_unknown_instants",
        "test_stamps_undo_the_aliasing_of_a_part_time_sensor",
        "test_what_ran_before_the_region_does_not_pass_for_idle",
    },
}


# Files whose tests share what is costly to make: a wheel, a site, a recording. With `--dist loadgroup`, as `make unit`
# has it, one process runs all of each, and makes it once.
TOGETHER = frozenset(
    {
        *("analysis/characterisation/test_characterise.py", "analysis/comparison/test_compare.py"),
        *("cluster/test_dataset.py", "cluster/test_mpi.py"),
        *("calibration/test_device_session.py", "cli/test_examples.py", "docs/test_example_backend.py"),
        *("docs/test_site.py", "integrations/test_kernel_tuner.py", "lab/test_cards.py", "packaging/test_wheel.py"),
        *("io/read/test_parts.py", "live/test_view.py", "plotting/test_interactive.py"),
    }
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many workers as there are cores: half of the time tests wait for processes, ports, clocks and disks."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's workers look which tests belong together
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and those that belong together."""
    folder = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(folder):
            continue
        file = item.path.relative_to(folder).as_posix()
        if {getattr(item, "originalname", ""), item.name} & SLOW.get(file, set()):
            item.add_marker(pytest.mark.slow)
        if file in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(file))


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_told_where_it_was_left() -> Iterator[None]:
    """After each file, look for garbage, so that what ends badly fails it and not the next one; the rest is kept.

    Else each later search takes a second in the end: ctypes keeps what each private copy of pynvml defines for good.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_thread_left_behind() -> Iterator[None]:
    """Fail a test that leaves one of our threads running."""
    before = set(threading.enumerate())
    yield
    left = [t.name for t in threading.enumerate() if t not in before and t.name.startswith("pmtpy")]
    assert not left, f"threads left running: {left}"
