package mig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
)

// ErrNoGeometry means that the table has no MIG geometry for a GPU, because it cannot be divided or
// is not listed yet.
var ErrNoGeometry = errors.New("no known MIG geometry")

// Profile is a size of GPU instance.
type Profile struct {
	// Name is the driver's name, "3g.40gb", used by plans and commands because numeric ids differ
	// between GPUs (14 is 2g on A100 and 1g on A30).
	Name string
	// ID is the id printed by nvidia-smi, not the NVML enumeration.
	ID            int
	ComputeSlices int
	// MemorySlices is the size of a placement.
	MemorySlices int
	// MediaEngines marks "+me"; a GPU holds at most one such instance.
	MediaEngines bool
	// DoubleMemory marks twice the usual memory for its compute. It is used only on request.
	DoubleMemory bool
	// UsableGiB is the usable memory, the lowest seen with any driver; 0 if unknown.
	UsableGiB float64
	// SMs counts streaming multiprocessors; 0 if unknown.
	SMs int
	// Max is the most instances on a GPU.
	Max int
	// Starts are the memory slices at which a placement may begin.
	Starts []int
}

// Model is the geometry of a GPU. Callers with a driver can construct one ([NVML:
// nvmlDeviceGetGpuInstancePossiblePlacements_v2]).
type Model struct {
	Name    string
	Aliases []string
	// ComputeSlices and MemorySlices divide the GPU; at most 8 memory slices.
	ComputeSlices, MemorySlices int
	// Profiles in rising order of memory slices, then compute slices.
	Profiles []Profile
	// Source is the source of the geometry. Inferred reports that it was derived from identical
	// profile ids and counts rather than seen on this GPU.
	Source   string
	Inferred bool
}

// Profile returns the profile with a name.
func (m Model) Profile(name string) (Profile, bool) {
	if i := m.index(name); i >= 0 {
		return m.Profiles[i], true
	}
	return Profile{}, false
}

func (m Model) index(name string) int {
	return slices.IndexFunc(m.Profiles, func(p Profile) bool { return p.Name == name })
}

// atLeastGiB returns the guaranteed memory of profile i: its own if known, else that of the largest
// known profile with no more memory slices.
func (m Model) atLeastGiB(i int) float64 {
	if own := m.Profiles[i].UsableGiB; own > 0 {
		return own
	}
	var most float64
	for _, q := range m.Profiles {
		if q.MemorySlices <= m.Profiles[i].MemorySlices {
			most = max(most, q.UsableGiB)
		}
	}
	return most
}

// largest returns the profile with the most memory slices.
func (m Model) largest() int {
	at := 0
	for i, p := range m.Profiles {
		if q := m.Profiles[at]; p.MemorySlices > q.MemorySlices ||
			(p.MemorySlices == q.MemorySlices && p.ComputeSlices > q.ComputeSlices) {
			at = i
		}
	}
	return at
}

// maxMemorySlices bounds the memory slices of a model, because sets of them are bytes.
const maxMemorySlices = 8

// check refuses invalid models.
func (m Model) check() error {
	if m.Name == "" || m.MemorySlices < 1 || m.MemorySlices > maxMemorySlices || len(m.Profiles) == 0 ||
		len(m.Profiles) > 32 {
		return fmt.Errorf("model %q: expected a name, 1 to %d memory slices and 1 to 32 profiles",
			m.Name, maxMemorySlices)
	}
	for i, p := range m.Profiles {
		if p.MemorySlices < 1 || p.ComputeSlices < 1 || len(p.Starts) == 0 || m.index(p.Name) != i {
			return fmt.Errorf("model %s: profile %q has no size, no start, or a duplicate name", m.Name, p.Name)
		}
		for _, s := range p.Starts {
			if s < 0 || s+p.MemorySlices > m.MemorySlices {
				return fmt.Errorf("model %s: profile %s does not fit at slice %d", m.Name, p.Name, s)
			}
		}
	}
	return nil
}

const (
	guide = "NVIDIA MIG user guide and nvidia-smi mig -lgip dumps"
	parts = "NVIDIA/mig-parted and NVIDIA/k8s-test-infra fixtures"
)

// models is the table. Values of a seven-slice GPU are ordered 1g, 1g with double memory, 2g, 3g,
// 4g, 7g.
var models = []Model{
	{
		Name: "A30-24GB", Aliases: []string{"a30"}, ComputeSlices: 4, MemorySlices: 4, Source: guide,
		Profiles: []Profile{
			{
				Name: "1g.6gb", ID: 14, ComputeSlices: 1, MemorySlices: 1, UsableGiB: 5.81, SMs: 14, Max: 4,
				Starts: []int{0, 1, 2, 3},
			},
			{
				Name: "1g.6gb+me", ID: 21, ComputeSlices: 1, MemorySlices: 1, MediaEngines: true,
				UsableGiB: 5.81, SMs: 14,
				Max: 1, Starts: []int{0, 1, 2, 3},
			},
			{
				Name: "2g.12gb", ID: 5, ComputeSlices: 2, MemorySlices: 2, UsableGiB: 11.69, SMs: 28, Max: 2,
				Starts: []int{0, 2},
			},
			{
				Name: "2g.12gb+me", ID: 6, ComputeSlices: 2, MemorySlices: 2, MediaEngines: true,
				UsableGiB: 11.69, SMs: 28,
				Max: 1, Starts: []int{0, 2},
			},
			{
				Name: "4g.24gb", ID: 0, ComputeSlices: 4, MemorySlices: 4, UsableGiB: 23.44, SMs: 56, Max: 1,
				Starts: []int{0},
			},
		},
	},
	sevenSlice("A100-40GB", guide, []string{"a100", "a100-40"},
		[6]int{5, 10, 10, 20, 20, 40}, [6]float64{4.75, 9.62, 9.62, 19.5, 19.5, 39.25}, ampere),
	sevenSlice("A100-80GB", guide, []string{"a100-80"},
		[6]int{10, 20, 20, 40, 40, 80}, [6]float64{9.62, 19.5, 19.5, 39.25, 39.25, 78.5}, ampere),
	sevenSlice("H100-80GB", guide, []string{"h100", "h100-80"},
		[6]int{10, 20, 20, 40, 40, 80}, [6]float64{9.75, 19.62, 19.62, 39.5, 39.5, 79.25}, hopper),
	sevenSlice("H100-94GB", parts, []string{"h100-nvl", "h100-94"},
		[6]int{12, 24, 24, 47, 47, 94}, [6]float64{10.75, 21.62, 21.62, 46.38, 46.38, 93.12}, hopper),
	inferred(sevenSlice("H200-141GB", guide+", placements by identical ids and counts", []string{"h200", "h200-141"},
		[6]int{18, 35, 35, 71, 71, 141}, [6]float64{16, 32.25, 32.25, 69.5, 69.5, 140}, hopper)),
	// Two dumps of B200 differ, 22.0 and 20.5 GiB for 1g; the memory from 3g up is in
	// neither.
	sevenSlice("B200-180GB", parts, []string{"b200", "b200-180"},
		[6]int{23, 45, 45, 90, 90, 180}, [6]float64{20.5, 44.25, 44.25, 0, 0, 0}, [6]int{18, 30, 36, 0, 0, 0}),
}

var (
	ampere = [6]int{14, 14, 28, 42, 56, 98}
	hopper = [6]int{16, 26, 32, 60, 64, 132}
)

// sevenSlice is the common geometry of A100, H100, H200 and B200: seven compute and eight memory
// slices (NVIDIA MIG user guide; nvidia-smi mig -lgipp).
func sevenSlice(name, source string, aliases []string, gb [6]int, usable [6]float64, sms [6]int) Model {
	called := func(compute, i int) string { return fmt.Sprintf("%dg.%dgb", compute, gb[i]) }
	all := []int{0, 1, 2, 3, 4, 5, 6}
	return Model{
		Name: name, Aliases: aliases, ComputeSlices: 7, MemorySlices: 8, Source: source,
		Profiles: []Profile{
			{
				Name: called(1, 0), ID: 19, ComputeSlices: 1, MemorySlices: 1,
				UsableGiB: usable[0], SMs: sms[0], Max: 7,
				Starts: all,
			},
			{
				Name: called(1, 0) + "+me", ID: 20, ComputeSlices: 1, MemorySlices: 1,
				MediaEngines: true, UsableGiB: usable[0],
				SMs: sms[0], Max: 1, Starts: all,
			},
			{
				Name: called(1, 1), ID: 15, ComputeSlices: 1, MemorySlices: 2,
				DoubleMemory: true, UsableGiB: usable[1],
				SMs: sms[1], Max: 4, Starts: []int{0, 2, 4, 6},
			},
			{
				Name: called(2, 2), ID: 14, ComputeSlices: 2, MemorySlices: 2,
				UsableGiB: usable[2], SMs: sms[2], Max: 3,
				Starts: []int{0, 2, 4},
			},
			{
				Name: called(3, 3), ID: 9, ComputeSlices: 3, MemorySlices: 4,
				UsableGiB: usable[3], SMs: sms[3], Max: 2,
				Starts: []int{0, 4},
			},
			{
				Name: called(4, 4), ID: 5, ComputeSlices: 4, MemorySlices: 4,
				UsableGiB: usable[4], SMs: sms[4], Max: 1,
				Starts: []int{0},
			},
			{
				Name: called(7, 5), ID: 0, ComputeSlices: 7, MemorySlices: 8,
				UsableGiB: usable[5], SMs: sms[5], Max: 1,
				Starts: []int{0},
			},
		},
	}
}

func inferred(m Model) Model {
	m.Inferred = true
	return m
}

// Models returns the GPUs of the table, smaller ones first.
func Models() []Model {
	out := slices.Clone(models)
	for i := range out {
		out[i].Profiles = slices.Clone(out[i].Profiles)
	}
	return out
}

// ModelNamed returns the GPU with a name or alias, ignoring case, spaces and a vendor prefix, or
// ErrNoGeometry.
func ModelNamed(name string) (Model, error) {
	folded := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "-"), "nvidia-")
	var names []string
	for _, m := range Models() {
		if folded == strings.ToLower(m.Name) || slices.Contains(m.Aliases, folded) {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Model{}, fmt.Errorf("look up GPU %.60q: %w: known are %s; share other GPUs by MPS or time-slicing%s", name,
		ErrNoGeometry, strings.Join(names, ", "), document.DidYouMean(name, names))
}
