package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// ProfileOptions select what to measure.
type ProfileOptions struct {
	// Command is started; or PID is a running process.
	Command []string
	PID     int
	// For is the duration of the measurement; 0 is until the process ends. Every is the sampling
	// interval.
	For, Every time.Duration
	// Type is the type of this machine, for the verdict on its GPUs; empty skips that. Region
	// selects prices.
	Type, Region string
	In           io.Reader
	Out, Err     io.Writer
}

// profileHeadroom is the free share to keep above the measured use.
const profileHeadroom = 0.2

// mostFits is the maximum number of listed machines.
const mostFits = 5

// profiler collects samples.
type profiler struct {
	options ProfileOptions
	gpus    interface {
		Read(context.Context) ([]agent.GPU, error)
	}
	now          func() time.Time
	doc          view.Profile
	cpus, memory []float64
	last         agent.ProcessUse
	lastThreads  agent.Threads
	lastAt       time.Time
	waits        waitCounts
	gpuSamples   []gpuSample
	unreadable   int
}

// gpuSample is a sample of one GPU.
type gpuSample struct {
	at  time.Time
	gpu string
	agent.GPU
}

// Profile measures a command or a process, and judges what it used. The command's own streams and
// exit code are unchanged.
func Profile(ctx context.Context, req *runtime.Request, o ProfileOptions) (view.Profile, error) {
	_, book, err := req.Priced()
	if err != nil {
		return view.Profile{}, err
	}
	if o.Type != "" {
		if _, known := book.Machine(o.Type); !known {
			return view.Profile{}, runtime.Invalid("--type %s: the price book has no such machine type", o.Type)
		}
	}
	o.Region = cmp.Or(o.Region, "us-east-1")
	req.CheckRegion(book, o.Region)
	p := &profiler{options: o, gpus: agent.SMI{}, now: time.Now, doc: view.Profile{ //nolint:forbidigo // it measures
		Schema: view.ProfileSchema, Command: append([]string{}, o.Command...), PID: o.PID, GPUs: []view.ProfileGPU{},
		MachineCPUs: goruntime.NumCPU(), Region: o.Region, Fits: []view.ProfileFit{}, Notes: []string{},
	}}
	if err := p.run(ctx); err != nil {
		return p.doc, err
	}
	p.summarize()
	return p.doc, p.judge(ctx, book)
}

// run samples until the process has ended or the time is over.
func (p *profiler) run(ctx context.Context) error {
	ended := make(chan error, 1)
	if len(p.options.Command) > 0 {
		// The terminal interrupts the command, which handles it itself.
		c := exec.CommandContext(context.WithoutCancel(ctx), p.options.Command[0], p.options.Command[1:]...)
		c.Stdin, c.Stdout, c.Stderr = p.options.In, p.options.Out, p.options.Err
		if err := c.Start(); err != nil {
			return &runtime.Error{
				Class: runtime.Usage, Code: "not_started", Err: fmt.Errorf("start the command: %w", err),
			}
		}
		p.doc.PID = c.Process.Pid
		go func() { ended <- c.Wait() }()
	}
	p.doc.BeganAt = p.now().UTC()
	if err := p.sample(ctx); err != nil && len(p.options.Command) == 0 {
		return runtime.Invalid("--pid %d: %w", p.doc.PID, err)
	}
	tick := time.NewTicker(p.options.Every)
	defer tick.Stop()
	over := make(<-chan time.Time)
	if p.options.For > 0 {
		timer := time.NewTimer(p.options.For)
		defer timer.Stop()
		over = timer.C
	}
	done := ctx.Done()
	for measuring := true; ; {
		select {
		case err := <-ended:
			p.end(measuring)
			return p.takeExit(err)
		case <-tick.C:
			if !measuring {
				continue
			}
			if err := p.sample(ctx); errors.Is(err, fs.ErrNotExist) && len(p.options.Command) == 0 {
				p.end(true)
				return nil
			}
		case <-over:
			p.end(measuring)
			if measuring = false; len(p.options.Command) == 0 {
				return nil
			}
		case <-done:
			if done = nil; len(p.options.Command) == 0 { // the command got the signal too, and ends by itself
				p.end(measuring)
				return nil
			}
		}
	}
}

func (p *profiler) end(measuring bool) {
	if measuring {
		p.doc.Seconds = p.now().Sub(p.doc.BeganAt).Seconds()
	}
}

// takeExit records how the command ended.
func (p *profiler) takeExit(err error) error {
	code := 0
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && failed.ExitCode() < 0:
		p.doc.Notes = append(p.doc.Notes, "the command was ended: "+failed.String())
		return nil
	case errors.As(err, &failed):
		code = failed.ExitCode()
	case err != nil:
		return fmt.Errorf("wait for the command: %w", err)
	}
	p.doc.ExitCode = &code
	return nil
}

// sample reads the current use.
func (p *profiler) sample(ctx context.Context) error {
	at := p.now()
	u, err := agent.UseOf(p.doc.PID)
	if err != nil {
		return err
	}
	since, first, threads := at.Sub(p.lastAt), p.lastAt.IsZero(), agent.ThreadsOf(u.PIDs)
	if !first && since > 0 && u.CPU >= p.last.CPU {
		p.cpus = append(p.cpus, (u.CPU-p.last.CPU).Seconds()/since.Seconds())
	}
	core, cores := threads.Busiest(p.lastThreads, since)
	p.last, p.lastThreads, p.lastAt = u, threads, at
	p.memory = append(p.memory, float64(u.Memory)/(1<<30))
	p.doc.Samples++
	if p.gpus == nil {
		return nil
	}
	list, err := p.gpus.Read(ctx)
	switch {
	case errors.Is(err, agent.ErrNoGPUs):
		p.gpus = nil
	case err != nil && ctx.Err() == nil:
		p.unreadable++
		p.doc.GPUsUnknown = err.Error()
	}
	for _, g := range list {
		p.gpuSamples = append(p.gpuSamples, gpuSample{at, cmp.Or(g.Index, g.UUID), g})
	}
	if !first && len(list) > 0 && len(threads.CPU) > 0 {
		p.waits.add(list, cores/float64(p.doc.MachineCPUs), core, threads.DiskWaits)
	}
	return nil
}

// rangeOf returns the range of samples; nil if there are none.
func rangeOf(values []float64) *view.ProfileRange {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 {
		return sorted[min(len(sorted)-1, max(0, int(math.Ceil(share*float64(len(sorted))))-1))]
	}
	return &view.ProfileRange{P50: at(0.5), P95: at(0.95), Peak: sorted[len(sorted)-1]}
}

func (p *profiler) summarize() {
	p.doc.CPUs, p.doc.MemoryGiB = rangeOf(p.cpus), rangeOf(p.memory)
	if total, err := machineMemory(); err == nil {
		p.doc.MachineMemoryGiB = &total
	} else {
		p.doc.Notes = append(p.doc.Notes, "the memory of this machine is unknown: "+err.Error())
	}
	var names []string
	for _, s := range p.gpuSamples {
		if !slices.Contains(names, s.gpu) {
			names = append(names, s.gpu)
		}
	}
	for _, name := range names {
		of := func(signal usage.Signal, unit float64) *view.ProfileRange {
			var values []float64
			for _, s := range p.gpuSamples {
				if v, measured := s.Signals[signal]; measured && s.gpu == name {
					values = append(values, v/unit)
				}
			}
			return rangeOf(values)
		}
		p.doc.GPUs = append(p.doc.GPUs, view.ProfileGPU{
			GPU: name, Util: of(usage.GPUUtil, 1), MemoryGiB: of(usage.MemUsed, 1<<30), PowerW: of(usage.Power, 1),
		})
	}
	p.doc.Waits = p.waits.document()
	if p.unreadable > 0 && len(names) > 0 {
		p.doc.GPUsUnknown = fmt.Sprintf("%d samples are missing: %s", p.unreadable, p.doc.GPUsUnknown)
	}
}

// machineMemory returns the memory of this machine in GiB.
func machineMemory() (float64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var kib float64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %f kB", &kib); err != nil {
		return 0, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	return kib / (1 << 20), nil
}

// judge adds the verdict and the machines that fit.
func (p *profiler) judge(ctx context.Context, book *price.Book) error {
	computed := slices.ContainsFunc(p.doc.GPUs, func(g view.ProfileGPU) bool {
		return g.Util == nil || g.Util.Peak > 0
	})
	switch {
	case p.doc.CPUs == nil:
		p.doc.Notes = append(p.doc.Notes, "it ended before two samples: a shorter --every measures more")
		return nil
	case p.doc.GPUsUnknown != "" && len(p.doc.GPUs) == 0:
		p.doc.Notes = append(p.doc.Notes, "its GPUs are unmeasured, so no machine is named")
		return nil
	case len(p.doc.GPUs) == 0 || !computed:
		if len(p.doc.GPUs) > 0 {
			p.doc.Notes = append(p.doc.Notes, "no GPU computed: a machine without GPUs does")
		}
		p.fitCPUs(book)
		return nil
	case p.options.Type == "":
		p.doc.Notes = append(p.doc.Notes, "--type names the type of this machine, for a verdict on its GPUs")
		return nil
	}
	machine, _ := book.Machine(p.options.Type)
	if machine.GPUs() == 0 {
		return runtime.Invalid("--type %s has no GPUs, and this machine has", p.options.Type)
	}
	w := usage.NewWindow(p.doc.BeganAt, p.now(), p.options.Every, "nvidia-smi", nil)
	for _, s := range p.gpuSamples {
		for signal, v := range s.Signals {
			w.Add(s.gpu, signal, usage.Point{Time: s.at, Mean: v, Max: v})
		}
	}
	r, err := rightsize.FromWindows("profile", []rightsize.Measured{{
		Name: "this machine", Type: p.options.Type, Region: p.options.Region, Purpose: inventory.Training, Window: w,
	}}, book, rightsize.Params{Region: p.options.Region})
	if err != nil {
		return err
	}
	p.doc.Rightsize = &r
	for _, f := range r.Fits {
		asOf, _ := time.Parse(time.DateOnly, f.AsOf) // an unknown date stays zero
		m, _ := book.Machine(f.Type)
		p.doc.Fits = append(p.doc.Fits, view.ProfileFit{
			Type: f.Type, VCPUs: f.VCPUs, MemoryGiB: float64(m.MemoryMiB) / 1024, GPUs: f.GPUs,
			HourlyUSD: money.Known(f.HourlyUSD), Source: f.Source, AsOf: asOf,
		})
	}
	return ctx.Err()
}

// fitCPUs lists the cheapest machines without GPUs that provide the measured use with headroom.
func (p *profiler) fitCPUs(book *price.Book) {
	cpus := int(math.Ceil(p.doc.CPUs.P95 * (1 + profileHeadroom)))
	memory := p.doc.MemoryGiB.Peak * (1 + profileHeadroom)
	arch := map[string]string{"amd64": "x86_64"}[goruntime.GOARCH]
	arch = cmp.Or(arch, goruntime.GOARCH)
	for _, m := range book.Machines() {
		if m.Cloud != price.AWS || m.GPUs() > 0 || m.VCPUs < cpus || float64(m.MemoryMiB)/1024 < memory ||
			!strings.EqualFold(m.Arch, arch) {
			continue
		}
		rate, err := book.OnDemand(m.Type, p.options.Region)
		if err != nil {
			continue
		}
		hourly, err := rate.Hourly()
		if err != nil {
			continue
		}
		p.doc.Fits = append(p.doc.Fits, view.ProfileFit{
			Type: m.Type, VCPUs: m.VCPUs, MemoryGiB: float64(m.MemoryMiB) / 1024, HourlyUSD: money.Known(hourly),
			Source: rate.Source, AsOf: rate.AsOf,
		})
	}
	slices.SortStableFunc(p.doc.Fits, func(a, b view.ProfileFit) int {
		return cmp.Or(cmp.Compare(a.HourlyUSD.Or(0), b.HourlyUSD.Or(0)), cmp.Compare(a.Type, b.Type))
	})
	p.doc.Fits = p.doc.Fits[:min(len(p.doc.Fits), mostFits)]
	if len(p.doc.Fits) == 0 {
		p.doc.Notes = append(p.doc.Notes, fmt.Sprintf("no machine of the price book has %d CPUs and %.1f GiB in %s", cpus,
			memory, p.options.Region))
	}
}
