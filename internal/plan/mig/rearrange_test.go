package mig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func rearranged(t *testing.T, fleet string, current []Placed, wanted []Workload, o Options) Report {
	t.Helper()
	f := fleetOf(t, fleet)
	r, err := Rearrange(context.Background(), f, current, wanted, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range current {
		if current[i].Model == "" {
			current[i].Model = f[0].Model.Name
		}
	}
	checkLegal(t, f, wanted, o.DoubleMemory, r)
	checkSteps(t, f, current, r)
	return r
}

// TestFragmentation is the case of the user guide: 1g at 0, 1 and 5 leave no room
// for a 3g, and one move makes it.
func TestFragmentation(t *testing.T) {
	current := []Placed{
		{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a", Instance: "7"},
		{GPU: "0", Profile: "1g.10gb", Start: 1, Workload: "b", Instance: "8"},
		{GPU: "0", Profile: "1g.10gb", Start: 5, Workload: "c", Instance: "9"},
	}
	still := rearranged(t, "A100-80GB:1", slices.Clone(current), nil, Options{})
	if len(still.Moves) != 0 || slices.Contains(still.GPUs[0].Room, "3g.40gb") {
		t.Errorf("%d moves, room for %v in addition", len(still.Moves), still.GPUs[0].Room)
	}
	for _, wanted := range [][]Workload{
		{{"d", 30, 3, 1}},
		{{"a", 5, 1, 1}, {"b", 5, 1, 1}, {"c", 5, 1, 1}, {"d", 30, 3, 1}},
	} {
		r := rearranged(t, "A100-80GB", slices.Clone(current), wanted, Options{})
		if r.GPUsUsed != 1 || len(r.Moves) != 1 || *r.MovesLowerBound != 1 || !r.Optimal {
			t.Fatalf("%d GPUs, %d moves: %+v", r.GPUsUsed, len(r.Moves), r.Moves)
		}
		if m := r.Moves[0]; m.Workload != "c" || m.From != (Site{"0", "1g.10gb", 5}) ||
			m.To.Start < 2 || m.To.Start > 3 {
			t.Errorf("%+v, want c from 5 to 2 or 3", m)
		}
		want := fmt.Sprintf(`nvidia-smi mig -i 0 -cgi 1g.10gb:%d -C
# drain c on GPU 0, 1g.10gb at 5: checkpoint, then end its process
nvidia-smi -L
CUDA_VISIBLE_DEVICES=MIG-<uuid:0/1g.10gb@%[1]d> # start c with this in its environment, in a process of its own
nvidia-smi mig -i 0 -gi 9 -dci
nvidia-smi mig -i 0 -gi 9 -dgi
nvidia-smi mig -i 0 -cgi 3g.40gb:4 -C
nvidia-smi -L
CUDA_VISIBLE_DEVICES=MIG-<uuid:0/3g.40gb@4> # start d with this in its environment, in a process of its own`, r.Moves[0].To.Start)
		if got := strings.Join(r.Commands, "\n"); got != want {
			t.Errorf("commands are\n%s\nwant\n%s", got, want)
		}
	}
}

// circle is a GPU on which a 3g has to change places with two 1g to make room for a
// 2g: it has no spare placement for the one that would have to step aside.
func circle() []Placed {
	return []Placed{
		{GPU: "0", Profile: "3g.40gb", Start: 0, Workload: "a"},
		{GPU: "0", Profile: "1g.10gb", Start: 4, Workload: "b"},
		{GPU: "0", Profile: "1g.10gb", Start: 5, Workload: "c"},
	}
}

func TestCircle(t *testing.T) {
	wanted := []Workload{{"d", 15, 2, 1}}
	t.Run("no spare placement: one waits", func(t *testing.T) {
		r := rearranged(t, "A100-80GB:1", circle(), wanted, Options{})
		waits := 0
		for _, m := range r.Moves {
			if m.Waits {
				waits++
			}
		}
		if r.GPUsUsed != 1 || len(r.Moves) != 3 || waits == 0 ||
			!strings.Contains(strings.Join(r.Notes, "\n"), "is stopped until") {
			t.Errorf("%d GPUs, moves %+v, notes %q", r.GPUsUsed, r.Moves, r.Notes)
		}
	})
	t.Run("a spare placement on another GPU", func(t *testing.T) {
		// The second GPU has two free slices, useful only to the workloads that
		// step aside: 7g on a third shows that GPUs are not mixed up.
		current := append(circle(),
			Placed{GPU: "1", Profile: "3g.40gb", Start: 4, Workload: "e"},
			Placed{GPU: "1", Profile: "2g.20gb", Start: 0, Workload: "f"},
			Placed{GPU: "2", Profile: "7g.80gb", Start: 0, Workload: "g"})
		r := rearranged(t, "A100-80GB:3", current, append([]Workload{{"h", 15, 2, 1}}, wanted...), Options{})
		via := 0
		for _, m := range r.Moves {
			if m.Via != nil {
				via++
			}
		}
		if r.GPUsUsed != 3 || len(r.Unplaced) != 0 || via == 0 || *r.MovesLowerBound != len(r.Moves) {
			t.Errorf("%d GPUs, moves %+v, unplaced %+v", r.GPUsUsed, r.Moves, r.Unplaced)
		}
	})
}

func TestKeepGPUs(t *testing.T) {
	current := []Placed{
		{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a"},
		{GPU: "1", Profile: "1g.10gb", Start: 0, Workload: "b"},
		{GPU: "GPU-5", Profile: "1g.10gb", Start: 0, Workload: "c"},
	}
	r := rearranged(t, "A100-80GB", slices.Clone(current), nil, Options{})
	if r.GPUsUsed != 1 || len(r.Moves) != 2 || *r.MovesLowerBound != 2 || r.LowerBound != 1 {
		t.Errorf("%d GPUs, %d moves", r.GPUsUsed, len(r.Moves))
	}
	if notes := strings.Join(r.Notes, "\n"); strings.Count(notes, "is empty afterwards") != 2 {
		t.Errorf("notes are %q", r.Notes)
	}
	r = rearranged(t, "A100-80GB", slices.Clone(current), []Workload{{"d", 60, 7, 1}}, Options{KeepGPUs: true})
	if r.GPUsUsed != 3 || len(r.Moves) != 1 || r.LowerBound != 2 || !r.Optimal {
		t.Errorf("%d GPUs (bound %d), %d moves: one GPU has to be emptied", r.GPUsUsed, r.LowerBound, len(r.Moves))
	}
}

// TestToday checks what is done with today's placements that are not simply kept.
func TestToday(t *testing.T) {
	one := func(p Placed) []Placed { return []Placed{p} }
	t.Run("not named: it stays in use", func(t *testing.T) {
		r := rearranged(t, "A100-80GB", one(Placed{GPU: "0", Profile: "2g.20gb", Start: 2}),
			[]Workload{{"w", 30, 4, 1}},
			Options{})
		if r.GPUsUsed != 1 || len(r.Moves) != 1 || len(r.Released) != 0 ||
			!strings.Contains(strings.Join(r.Notes, "\n"), "1 instance today without a known workload") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("fewer wanted: the emptiest GPU lets go", func(t *testing.T) {
		current := []Placed{
			{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a"},
			{GPU: "0", Profile: "1g.10gb", Start: 1, Workload: "a"},
			{GPU: "1", Profile: "1g.10gb", Start: 0, Workload: "a"},
		}
		r := rearranged(t, "A100-80GB", current, []Workload{{"a", 5, 1, 2}}, Options{})
		if len(r.Moves) != 0 || r.GPUsUsed != 1 || len(r.Released) != 1 || r.Released[0].GPU != "1" {
			t.Errorf("%d moves, released %+v", len(r.Moves), r.Released)
		}
	})
	t.Run("none wanted", func(t *testing.T) {
		r := rearranged(t, "A100-80GB", one(Placed{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a"}),
			[]Workload{{"a", 5, 1, 0}}, Options{})
		if r.GPUsUsed != 0 || len(r.Released) != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("media engines stay where they are", func(t *testing.T) {
		current := []Placed{
			{GPU: "0", Profile: "1g.10gb+me", Start: 0, Workload: "video"},
			{GPU: "1", Profile: "1g.10gb+me", Start: 3, Workload: "film"},
		}
		r := rearranged(t, "A100-80GB", current, []Workload{{"w", 30, 4, 2}, {"film", 2, 1, 1}}, Options{})
		if len(r.Moves) != 0 || r.GPUsUsed != 4 || r.LowerBound != 4 || !r.Optimal {
			t.Errorf("%d moves, %d GPUs, bound %d", len(r.Moves), r.GPUsUsed, r.LowerBound)
		}
	})
	t.Run("outgrown: it moves", func(t *testing.T) {
		r := rearranged(t, "A100-80GB", one(Placed{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a"}),
			[]Workload{{"a", 30, 3, 1}}, Options{})
		if len(r.Moves) != 1 || r.Moves[0].To.Profile != "3g.40gb" || len(r.Unplaced) != 0 {
			t.Errorf("moves %+v", r.Moves)
		}
	})
	t.Run("outgrown all there is: it stays", func(t *testing.T) {
		current := []Placed{
			{GPU: "0", Profile: "1g.10gb", Start: 0, Workload: "a"},
			{GPU: "0", Profile: "3g.40gb", Start: 4, Workload: "b"},
		}
		for _, gib := range []float64{79, 50} {
			r, err := Rearrange(context.Background(), fleetOf(t, "A100-80GB:1"), current,
				[]Workload{{"a", gib, 1, 1}, {"new", 30, 3, 1}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkSteps(t, fleetOf(t, "A100-80GB:1"), []Placed{
				{GPU: "0", Model: "A100-80GB", Profile: "1g.10gb", Start: 0, Workload: "a"},
				{GPU: "0", Model: "A100-80GB", Profile: "3g.40gb", Start: 4, Workload: "b"},
			}, r)
			if len(r.Moves) != 0 || len(r.GPUs[0].Placements) != 2 || len(r.Unplaced) != 2 {
				t.Errorf("%v GiB: moves %+v, unplaced %+v", gib, r.Moves, r.Unplaced)
			}
		}
	})
	t.Run("what runs is not ended for what is new", func(t *testing.T) {
		r := rearranged(t, "A100-80GB:1", one(Placed{GPU: "0", Profile: "7g.80gb", Start: 0, Workload: "a"}),
			[]Workload{{"new", 5, 1, 7}}, Options{})
		if len(r.Moves) != 0 || r.GPUs[0].Placements[0].Workload != "a" || len(r.Unplaced) != 1 ||
			r.Unplaced[0].Count != 7 {
			t.Errorf("%+v, unplaced %+v", r.GPUs, r.Unplaced)
		}
	})
	t.Run("what runs moves for what is new", func(t *testing.T) {
		// At 4 it leaves room for four of seven, at 0 for three.
		r := rearranged(t, "A100-80GB:1", one(Placed{GPU: "0", Profile: "3g.40gb", Start: 0, Workload: "a"}),
			[]Workload{{"new", 5, 1, 7}}, Options{})
		if len(r.Moves) != 1 || r.Moves[0].To.Start != 4 || len(r.Unplaced) != 1 || r.Unplaced[0].Count != 3 {
			t.Errorf("moves %+v, unplaced %+v", r.Moves, r.Unplaced)
		}
	})
	t.Run("another model", func(t *testing.T) {
		r := rearranged(t, "A100-80GB",
			one(Placed{GPU: "0", Model: "A30-24GB", Profile: "1g.6gb", Start: 1, Workload: "a"}),
			[]Workload{{"w", 30, 3, 1}}, Options{})
		if r.GPUsUsed != 1 || len(r.Moves) != 1 || r.GPUs[0].Model != "A100-80GB" {
			t.Errorf("%+v", r.GPUs)
		}
	})
}

func TestRearrangeErrors(t *testing.T) {
	at := func(profile string, start int) Placed { return Placed{GPU: "0", Profile: profile, Start: start} }
	for _, tc := range []struct {
		name    string
		current []Placed
		want    string
	}{
		{"overlap", []Placed{at("3g.40gb", 0), at("1g.10gb", 3)}, "start 3 overlaps an earlier placement on GPU 0"},
		{"start", []Placed{at("2g.20gb", 1)}, "start 1 is not a start of 2g.20gb: [0 2 4]"},
		{"profile", []Placed{at("3g.20gb", 0)}, `profile "3g.20gb" is not a profile of A100-80GB`},
		{"two +me", []Placed{at("1g.10gb+me", 0), at("1g.10gb+me", 1)}, "second +me"},
		{"an option for a GPU", []Placed{{GPU: "-x", Profile: "1g.10gb"}}, "is not a GPU id"},
		{"a shell for a GPU", []Placed{{GPU: "0;reboot", Profile: "1g.10gb"}}, "is not a GPU id"},
		{
			"a shell for an instance", []Placed{{GPU: "0", Profile: "1g.10gb", Instance: "1;reboot"}},
			"is not the number",
		},
		{
			"a line for a workload", []Placed{{GPU: "0", Profile: "1g.10gb", Workload: "a\nreboot"}},
			"control character",
		},
		{
			"more GPUs than there are", []Placed{{GPU: "0", Profile: "1g.10gb"}, {GPU: "1", Profile: "1g.10gb"}},
			"the current placements use 2",
		},
	} {
		if _, err := Rearrange(context.Background(), fleetOf(t, "A100-80GB:1"), tc.current, nil,
			Options{}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	many := []Workload{{"w", 1, 1, maxPlaced}}
	if _, err := Rearrange(context.Background(), fleetOf(t, "A100-80GB"), []Placed{at("1g.10gb", 0)}, many,
		Options{}); err == nil || !strings.Contains(err.Error(), "more than 5000") {
		t.Errorf("%v, want too many", err)
	}
}

// TestAgain checks that a plan read back as today's placements is left as it is.
func TestAgain(t *testing.T) {
	workloads := []Workload{{"a", 30, 3, 3}, {"b", 15, 2, 5}, {"c", 5, 1, 4}}
	r := packed(t, "A100-80GB", workloads, Options{})
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fleet := fleetOf(t, "A100-80GB")
	current, err := ReadPlacements("plan.json", bytes.NewReader(out), fleet)
	if err != nil {
		t.Fatal(err)
	}
	again := rearranged(t, "A100-80GB", current, workloads, Options{})
	if len(again.Moves) != 0 || len(again.Steps) != 0 || again.GPUsUsed != r.GPUsUsed {
		t.Errorf("%d moves, steps %+v", len(again.Moves), again.Steps)
	}
}
