"""The life of a session, by properties and by cases, without a process."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.runtime import machine
from workbench.runtime.life import (
    Begin,
    CloseAsked,
    EndCell,
    Exited,
    Finished,
    Form,
    Formed,
    Free,
    Halt,
    InterruptAsked,
    KillRanks,
    Request,
    Requested,
    RestartAsked,
    Run,
    SayReady,
    SignalRanks,
    Start,
    Started,
    StopAll,
    Tick,
)


class World:
    """Plays host and ranks: obeys instructions, keeps what is under way."""

    def __init__(self, num_ranks):
        self.state = machine.new(num_ranks)
        self.now_s = 0.0
        self.log = []
        self.asked = set()
        self.ended = {}
        self.send(Begin(at_s=0.0))

    def send(self, event):
        self.state, instructions = machine.handle(self.state, event)
        self.log += instructions
        for instruction in instructions:
            assert instruction.cause
            if isinstance(instruction, EndCell):
                assert instruction.cell not in self.ended
                self.ended[instruction.cell] = dict(instruction.outcomes)
        return instructions

    def start_all(self):
        for number, rank in enumerate(self.state.ranks):
            if rank.phase == "starting":
                self.send(
                    Started(rank=number, incarnation=rank.incarnation, at_s=self.now_s)
                )

    def form_all(self):
        for number, rank in enumerate(self.state.ranks):
            if rank.phase == "forming":
                generation = self.state.generation
                self.send(
                    Formed(
                        rank=number, generation=generation, error="", at_s=self.now_s
                    )
                )

    def settle(self):
        """Let everything that is under way succeed."""
        self.start_all()
        self.form_all()

    def request(self, cell="c", ranks=None, timeout_s=None):
        ranks = tuple(range(len(self.state.ranks))) if ranks is None else ranks
        self.asked.add(cell)
        request = Request(cell=cell, ranks=ranks, timeout_s=timeout_s)
        return self.send(Requested(request=request, at_s=self.now_s))

    def finish(self, rank, status="ok", *, clean=True, issued="0:1"):
        return self.send(
            Finished(
                rank=rank,
                cell=self.state.cell.request.cell,
                status=status,
                clean=clean,
                issued=issued,
                at_s=self.now_s,
            )
        )

    def exit(self, rank):
        incarnation = self.state.ranks[rank].incarnation
        return self.send(
            Exited(rank=rank, incarnation=incarnation, cause="gone", at_s=self.now_s)
        )


def ready_world(num_ranks=2):
    world = World(num_ranks)
    world.settle()
    assert world.state.phase == "ready"
    return world


def kinds(instructions):
    return [type(instruction) for instruction in instructions]


def test_a_session_starts_forms_and_is_ready():
    world = ready_world(2)

    assert kinds(world.log) == [Start, Start, Form, SayReady]


def test_a_cell_waits_until_the_group_stands():
    world = World(2)

    assert world.request() == ()
    world.settle()

    assert Run in kinds(world.log)


def test_cells_run_one_after_the_other():
    world = ready_world()
    world.request("a")
    world.request("b")

    world.finish(0)
    instructions = world.finish(1)

    assert kinds(instructions) == [EndCell, Run]


def test_a_failing_rank_frees_the_others():
    world = ready_world(3)
    world.request()

    (free,) = world.finish(1, "error")

    assert isinstance(free, Free)
    assert (free.ranks, free.failed) == ((0, 2), (1,))


def test_ranks_still_in_the_cell_are_told_who_has_finished_it():
    world = ready_world(3)
    world.request()
    world.finish(1)

    nothing = world.send(Tick(at_s=machine.TELL_AFTER_S / 2))
    (free,) = world.send(Tick(at_s=machine.TELL_AFTER_S))
    again = world.send(Tick(at_s=99.0))

    assert (nothing, again) == ((), ())
    assert (free.ranks, free.failed, free.finished) == ((0, 2), (), (1,))


def test_ranks_out_of_step_after_a_failure_form_again():
    world = ready_world()
    world.request()
    world.finish(0, "error", issued="0:1")

    instructions = world.finish(1, "freed", issued="0:2")

    assert kinds(instructions) == [EndCell, Form]


def test_a_failure_in_step_keeps_the_group():
    world = ready_world()
    world.request()
    world.finish(0, "error")

    assert kinds(world.finish(1, "ok")) == [EndCell]


def test_a_lost_rank_is_started_again_and_only_then_the_group_forms():
    world = ready_world()
    world.request()
    world.exit(0)
    instructions = world.finish(1, "freed", clean=False)

    assert kinds(instructions) == [EndCell, Start]
    assert world.ended["c"] == {0: "lost", 1: "freed"}
    world.settle()
    assert world.state.phase == "ready"


def test_the_ladder_asks_signals_kills():
    world = ready_world()
    world.request()

    steps = [
        kinds(world.send(InterruptAsked(cell="", reason="stop", at_s=0.0))),
        kinds(world.send(Tick(at_s=1.0))),
        kinds(world.send(Tick(at_s=machine.SIGNAL_AFTER_S))),
        kinds(world.send(Tick(at_s=machine.KILL_AFTER_S))),
        kinds(world.send(Tick(at_s=99.0))),
    ]

    assert steps == [[Halt], [], [SignalRanks], [KillRanks], []]


def test_a_time_out_stops_the_cell_and_says_so():
    world = ready_world()
    world.request(timeout_s=5.0)

    (halt,) = world.send(Tick(at_s=5.0))

    assert isinstance(halt, Halt)
    assert "time-out of 5 s" in halt.cause


def test_interrupting_a_waiting_cell_takes_it_out_of_the_queue():
    world = ready_world()
    world.request("a")
    world.request("b")

    world.send(InterruptAsked(cell="b", reason="stop", at_s=0.0))

    assert world.ended == {"b": {0: "refused", 1: "refused"}}


def test_messages_of_an_older_generation_are_dropped():
    world = World(2)
    world.start_all()

    world.send(Formed(rank=0, generation=0, error="", at_s=0.0))

    assert world.state.ranks[0].phase == "forming"


def test_an_exit_of_an_older_process_is_dropped():
    world = ready_world()
    before = world.state

    world.send(Exited(rank=0, incarnation=7, cause="late", at_s=0.0))

    assert world.state == before


def test_a_group_that_cannot_form_ends_the_session():
    world = World(2)
    world.start_all()
    for _ in range(machine.MAX_FORM_FAILURES):
        generation = world.state.generation
        world.send(Formed(rank=0, generation=generation, error="no", at_s=0.0))

    assert world.state.phase == "failed"
    assert isinstance(world.log[-1], StopAll)


def test_a_rank_that_dies_at_every_start_ends_the_session():
    world = World(1)
    for _ in range(machine.MAX_START_FAILURES + 1):
        world.exit(0)

    assert world.state.phase == "failed"


def test_restart_kills_and_the_exits_bring_new_processes():
    world = ready_world()

    (kill,) = world.send(RestartAsked(ranks=(1,), at_s=0.0))
    world.exit(1)
    world.settle()

    assert kill == KillRanks(ranks=(1,), cause="restart asked for")
    assert world.state.phase == "ready"
    assert [rank.incarnation for rank in world.state.ranks] == [0, 1]


class Lives(RuleBasedStateMachine):
    """Any order of events leads to a legal state, and every cell ends once."""

    def __init__(self):
        super().__init__()
        self.world = World(3)
        self.cells = 0

    def live(self):
        return self.world.state.phase not in ("closing", "failed")

    @rule(ranks=st.sets(st.integers(0, 2), min_size=1), limit=st.booleans())
    def request(self, ranks, limit):
        self.cells += 1
        self.world.request(
            f"c{self.cells}", tuple(sorted(ranks)), timeout_s=3.0 if limit else None
        )

    @rule()
    def start(self):
        self.world.start_all()

    @rule()
    def form(self):
        self.world.form_all()

    @rule(rank=st.integers(0, 2), generation=st.integers(0, 4))
    def fail_to_form(self, rank, generation):
        self.world.send(
            Formed(rank=rank, generation=generation, error="no", at_s=self.world.now_s)
        )

    @precondition(lambda self: self.world.state.cell is not None)
    @rule(
        rank=st.integers(0, 2),
        status=st.sampled_from(["ok", "error", "freed", "interrupted"]),
        clean=st.booleans(),
    )
    def finish(self, rank, status, clean):
        self.world.finish(rank, status, clean=clean)

    @rule(rank=st.integers(0, 2))
    def exit(self, rank):
        self.world.exit(rank)

    @rule(rank=st.integers(0, 2))
    def restart(self, rank):
        self.world.send(RestartAsked(ranks=(rank,), at_s=self.world.now_s))

    @rule()
    def interrupt(self):
        self.world.send(InterruptAsked(cell="", reason="stop", at_s=self.world.now_s))

    @rule(seconds=st.floats(0.1, 8.0))
    def wait(self, seconds):
        self.world.now_s += seconds
        self.world.send(Tick(at_s=self.world.now_s))

    @invariant()
    def a_running_cell_has_ranks_to_wait_for(self):
        cell = self.world.state.cell
        if cell is not None:
            assert cell.waiting
            for rank in cell.waiting:
                assert self.world.state.ranks[rank].phase == "running"

    @invariant()
    def only_a_cell_s_ranks_run(self):
        waiting = (
            self.world.state.cell.waiting if self.world.state.cell else frozenset()
        )
        for number, rank in enumerate(self.world.state.ranks):
            assert (rank.phase == "running") == (number in waiting) or not self.live()

    @invariant()
    def the_tally_is_right(self):
        state = self.world.state
        for phase in ("starting", "idle", "forming", "ready", "running", "lost"):
            count = sum(rank.phase == phase for rank in state.ranks)
            assert state.tally.get(phase, 0) == count

    @invariant()
    def a_ready_session_has_only_ready_ranks(self):
        if self.world.state.phase == "ready":
            assert {rank.phase for rank in self.world.state.ranks} == {"ready"}

    def teardown(self):
        """However it went, closing ends every cell that was asked for, once."""
        self.world.send(CloseAsked(reason="over", at_s=self.world.now_s))
        assert set(self.world.ended) == self.world.asked


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@settings(max_examples=3, deadline=None)
@given(st.lists(st.integers(0, 4095), min_size=1, max_size=3))
def test_4096_ranks_survive_faults(lost):
    world = ready_world(4096)
    for rank in lost:
        world.request(f"c{len(world.asked)}", (rank, (rank + 1) % 4096))
        world.exit(rank)
        world.finish((rank + 1) % 4096, "freed", clean=False)
        world.settle()

    assert world.state.phase == "ready"
    assert set(world.ended) == world.asked
