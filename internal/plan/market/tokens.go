package market

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// Model is a language model that is served, and to whom. A field that is zero means
// its default: an 8-billion-parameter model at 16 bits.
//
// The estimate is a roofline (Williams, Waterman and Patterson, 2009). A token takes 2
// floating-point operations for each active parameter (Kaplan et al., 2020). Prefill is
// bound by compute: throughput × ComputeShare / (2 × Active) tokens a second. One step
// of decoding reads all weights once and the cache of each sequence, and gives every
// sequence a token; it takes the longer of
//
//	(Parameters × WeightBytes + Batch × context × CacheBytes) / (bandwidth × BandwidthShare)
//	2 × Active × Batch / (throughput × ComputeShare)
//
// where the context is the prompt and half of the answer. A machine holds as many copies
// of the model as serve most; the devices of a copy are assumed to share its work
// without loss.
type Model struct {
	// Parameters of the model, 8e9; Active is those that one token passes through,
	// fewer in a mixture of experts; 0 is all.
	Parameters, Active float64
	// WeightBytes is bytes for each parameter: 2 for 16 bits, 1 for 8, 0.5 for 4. 2.
	WeightBytes float64
	// CacheBytes is bytes of keys and values for each token of a sequence. 0 scales
	// the 131,072 of Llama 3 8B (32 layers, 8 heads of 128, 16 bits) by the square
	// root of the parameters, which is within a fifth of Llama 3 70B's.
	CacheBytes float64
	// Prompt and Answer are tokens of a request. 1024 and 256.
	Prompt, Answer float64
	// Batch is the number of sequences a copy decodes together; 0 is as many as fit in its memory,
	// up to 256.
	Batch float64
	// ComputeShare and BandwidthShare are the reached shares of the vendor's figures, over 0 to 1.
	// 0.5, and 0.8, device memory's practical peak.
	ComputeShare, BandwidthShare float64
}

const (
	llamaParameters = 8e9
	llamaCache      = 131_072
	maxBatch        = 256
	// usableMemory is the share of device memory for weights and caches; the rest is
	// the runtime's and the activations'. Our choice, as serving engines have it.
	usableMemory = 0.9
)

// settled fills in the defaults and refuses what makes no sense.
func (m Model) settled() (Model, error) {
	m.Parameters = cmp.Or(m.Parameters, llamaParameters)
	m.Active = cmp.Or(m.Active, m.Parameters)
	m.WeightBytes = cmp.Or(m.WeightBytes, 2)
	m.CacheBytes = cmp.Or(m.CacheBytes, llamaCache*math.Sqrt(m.Parameters/llamaParameters))
	m.Prompt, m.Answer = cmp.Or(m.Prompt, 1024), cmp.Or(m.Answer, 256)
	m.ComputeShare, m.BandwidthShare = cmp.Or(m.ComputeShare, 0.5), cmp.Or(m.BandwidthShare, 0.8)
	within := func(v, low, high float64) bool { return v >= low && v <= high } // false for what is no number
	switch {
	case !within(m.Parameters, 1e6, 1e14):
		return Model{}, fmt.Errorf("%g parameters: expected 1e6 to 1e14", m.Parameters)
	case !within(m.Active, 1, m.Parameters):
		return Model{}, fmt.Errorf("%g active parameters: expected at most the model's %g", m.Active, m.Parameters)
	case !within(m.WeightBytes, 0.125, 8):
		return Model{}, fmt.Errorf("%g bytes per parameter: expected 0.125 to 8", m.WeightBytes)
	case !within(m.CacheBytes, 1, 1e9):
		return Model{}, fmt.Errorf("%g bytes of cache per token: expected 1 to 1e9", m.CacheBytes)
	case !within(m.Prompt, 1, 1e8) || !within(m.Answer, 1, 1e8):
		return Model{}, errors.New("prompt and answer: expected 1 to 1e8 tokens")
	case m.Batch != 0 && !within(m.Batch, 1, 1e6):
		return Model{}, fmt.Errorf("batch of %g: expected 1 to 1e6 sequences", m.Batch)
	case !within(m.ComputeShare, 1e-3, 1) || !within(m.BandwidthShare, 1e-3, 1):
		return Model{}, errors.New("shares of the vendor's figures: expected 0.001 to 1")
	}
	return m, nil
}

// rate returns the tokens a second, prompts and answers, of devices of one kind, or why
// they do not serve the model.
func (m Model) rate(acc price.Accelerator, devices float64) (rate float64, why string) {
	flops := m.throughput(acc) * 1e12 * m.ComputeShare
	bandwidth := acc.MemoryBandwidthGBps * 1e9 * m.BandwidthShare
	memory := float64(acc.MemoryMiB) * (1 << 20) * usableMemory
	if flops <= 0 || bandwidth <= 0 || memory <= 0 {
		return 0, "no published throughput, bandwidth and memory for its " + acc.Name
	}
	need := m.Parameters*m.WeightBytes + cmp.Or(m.Batch, 1)*(m.Prompt+m.Answer)*m.CacheBytes
	// A fraction of a device is one device as small as that.
	whole := math.Min(devices, 1)
	fewest := math.Ceil(need/(memory*whole)) * whole
	if fewest > devices {
		return 0, fmt.Sprintf("the model needs %s GiB; its devices have %s GiB", plain.Number(need/(1<<30), 1),
			plain.Number(memory*devices/(1<<30), 1))
	}
	for copies := 1.0; copies*fewest <= devices; copies++ {
		part := devices / copies
		rate = math.Max(rate, copies*m.copyRate(flops*part, bandwidth*part, memory*part))
	}
	return rate, ""
}

// copyRate returns the tokens a second of one copy of the model.
func (m Model) copyRate(flops, bandwidth, memory float64) float64 {
	weights := m.Parameters * m.WeightBytes
	batch := m.Batch
	if batch == 0 {
		fit := math.Floor((memory - weights) / ((m.Prompt + m.Answer) * m.CacheBytes))
		batch = math.Max(1, math.Min(maxBatch, fit))
	}
	read := weights + batch*(m.Prompt+m.Answer/2)*m.CacheBytes
	step := math.Max(read/bandwidth, 2*m.Active*batch/flops)
	request := m.Prompt*2*m.Active/flops + m.Answer*step/batch // seconds
	return (m.Prompt + m.Answer) / request
}

// throughput is in TFLOP/s: at 8-bit floats where the weights have no more bits and
// the device computes in them.
func (m Model) throughput(acc price.Accelerator) float64 {
	if m.WeightBytes <= 1 && acc.FP8TFLOPS > 0 {
		return acc.FP8TFLOPS
	}
	return acc.BF16TFLOPS
}

// assumptions of the estimate, for people.
func (m Model) assumptions() []string {
	batch := plain.Number(m.Batch, 0) + " sequences at a time"
	if m.Batch == 0 {
		batch = fmt.Sprintf("as many sequences at a time as fit in memory, up to %d", maxBatch)
	}
	return []string{
		fmt.Sprintf(
			"model: %s billion parameters, %s billion active, %s bytes each; %s KiB of cache per token; %s prompt "+
				"tokens and %s answer tokens per request; %s",
			plain.Number(m.Parameters/1e9, 2), plain.Number(m.Active/1e9, 2), plain.Number(m.WeightBytes, 3),
			plain.Number(m.CacheBytes/1024, 1), plain.Number(m.Prompt, 0), plain.Number(m.Answer, 0), batch),
		"prefill is compute bound: 2 operations per token and active parameter; a decoding step takes the larger of " +
			"memory time (weights and caches) and compute time",
		fmt.Sprintf("machines reach %s of the vendors' throughput and %s of their bandwidth; splitting a model over "+
			"devices costs nothing", plain.Share(m.ComputeShare, 0), plain.Share(m.BandwidthShare, 0)),
		"this is an estimate for comparison: measure before you buy",
	}
}
