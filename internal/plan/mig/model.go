package mig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
)

// ErrNoGeometry is returned for a GPU whose MIG geometry is not in the table: one
// that cannot be divided, or one that is not listed yet.
var ErrNoGeometry = errors.New("no known MIG geometry")

// Profile is one size of GPU instance.
type Profile struct {
	// Name is the driver's, "3g.40gb". Plans and commands go by it: numeric ids
	// differ between GPUs (14 is 2g on A100 and 1g on A30).
	Name string
	// ID is what nvidia-smi prints; not the NVML enumeration.
	ID            int
	ComputeSlices int
	// MemorySlices is the size of a placement.
	MemorySlices int
	// MediaEngines is "+me"; a GPU holds at most one such instance.
	MediaEngines bool
	// DoubleMemory has twice the memory that its compute would come with. It is used
	// only where asked for.
	DoubleMemory bool
	// UsableGiB is the memory a process can use; 0 where it is not known. Drivers
	// differ a little: the lowest seen is stated.
	UsableGiB float64
	// SMs counts streaming multiprocessors; 0 where it is not known.
	SMs int
	// Max is how many fit on a GPU.
	Max int
	// Starts are the memory slices at which a placement may begin.
	Starts []int
}

// Model is the geometry of one GPU. A caller that can ask a driver may fill one in
// itself ([NVML: nvmlDeviceGetGpuInstancePossiblePlacements_v2]).
type Model struct {
	Name    string
	Aliases []string
	// ComputeSlices and MemorySlices divide the GPU; at most 8 memory slices.
	ComputeSlices, MemorySlices int
	// Profiles in rising order of memory slices, then compute slices.
	Profiles []Profile
	// Source says where the geometry is from; Inferred that it was not seen on this
	// GPU and follows from identical profile ids and counts.
	Source   string
	Inferred bool
}

// Profile returns the profile of that name.
func (m Model) Profile(name string) (Profile, bool) {
	if i := m.index(name); i >= 0 {
		return m.Profiles[i], true
	}
	return Profile{}, false
}

func (m Model) index(name string) int {
	return slices.IndexFunc(m.Profiles, func(p Profile) bool { return p.Name == name })
}

// atLeastGiB is the memory that profile i is sure to have: its own where known, and
// that of the largest known profile with no more memory slices where not.
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

// largest is the profile with the most memory slices.
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

// maxMemorySlices bounds the memory slices of a model: sets of them are bytes.
const maxMemorySlices = 8

// check refuses a model that no GPU can be.
func (m Model) check() error {
	if m.Name == "" || m.MemorySlices < 1 || m.MemorySlices > maxMemorySlices || len(m.Profiles) == 0 ||
		len(m.Profiles) > 32 {
		return fmt.Errorf("model %q: expected a name, 1 to %d memory slices and 1 to 32 profiles", m.Name, maxMemorySlices)
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

// models is the table. The figures of a seven-slice GPU come in the order 1g, 1g
// with double memory, 2g, 3g, 4g, 7g.
var models = []Model{
	{
		Name: "A30-24GB", Aliases: []string{"a30"}, ComputeSlices: 4, MemorySlices: 4, Source: guide,
		Profiles: []Profile{
			{
				Name: "1g.6gb", ID: 14, ComputeSlices: 1, MemorySlices: 1, UsableGiB: 5.81, SMs: 14, Max: 4,
				Starts: []int{0, 1, 2, 3},
			},
			{
				Name: "1g.6gb+me", ID: 21, ComputeSlices: 1, MemorySlices: 1, MediaEngines: true, UsableGiB: 5.81, SMs: 14,
				Max: 1, Starts: []int{0, 1, 2, 3},
			},
			{Name: "2g.12gb", ID: 5, ComputeSlices: 2, MemorySlices: 2, UsableGiB: 11.69, SMs: 28, Max: 2, Starts: []int{0, 2}},
			{
				Name: "2g.12gb+me", ID: 6, ComputeSlices: 2, MemorySlices: 2, MediaEngines: true, UsableGiB: 11.69, SMs: 28,
				Max: 1, Starts: []int{0, 2},
			},
			{Name: "4g.24gb", ID: 0, ComputeSlices: 4, MemorySlices: 4, UsableGiB: 23.44, SMs: 56, Max: 1, Starts: []int{0}},
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

// sevenSlice is the geometry that A100, H100, H200 and B200 share: seven compute
// and eight memory slices (NVIDIA MIG user guide; real nvidia-smi mig -lgipp dumps).
func sevenSlice(name, source string, aliases []string, gb [6]int, usable [6]float64, sms [6]int) Model {
	called := func(compute, i int) string { return fmt.Sprintf("%dg.%dgb", compute, gb[i]) }
	all := []int{0, 1, 2, 3, 4, 5, 6}
	return Model{
		Name: name, Aliases: aliases, ComputeSlices: 7, MemorySlices: 8, Source: source,
		Profiles: []Profile{
			{
				Name: called(1, 0), ID: 19, ComputeSlices: 1, MemorySlices: 1, UsableGiB: usable[0], SMs: sms[0], Max: 7,
				Starts: all,
			},
			{
				Name: called(1, 0) + "+me", ID: 20, ComputeSlices: 1, MemorySlices: 1, MediaEngines: true, UsableGiB: usable[0],
				SMs: sms[0], Max: 1, Starts: all,
			},
			{
				Name: called(1, 1), ID: 15, ComputeSlices: 1, MemorySlices: 2, DoubleMemory: true, UsableGiB: usable[1],
				SMs: sms[1], Max: 4, Starts: []int{0, 2, 4, 6},
			},
			{
				Name: called(2, 2), ID: 14, ComputeSlices: 2, MemorySlices: 2, UsableGiB: usable[2], SMs: sms[2], Max: 3,
				Starts: []int{0, 2, 4},
			},
			{
				Name: called(3, 3), ID: 9, ComputeSlices: 3, MemorySlices: 4, UsableGiB: usable[3], SMs: sms[3], Max: 2,
				Starts: []int{0, 4},
			},
			{
				Name: called(4, 4), ID: 5, ComputeSlices: 4, MemorySlices: 4, UsableGiB: usable[4], SMs: sms[4], Max: 1,
				Starts: []int{0},
			},
			{
				Name: called(7, 5), ID: 0, ComputeSlices: 7, MemorySlices: 8, UsableGiB: usable[5], SMs: sms[5], Max: 1,
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

// ModelNamed returns the GPU of that name or alias; case, spaces and a vendor's
// name before it do not matter. It returns ErrNoGeometry for any other.
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
