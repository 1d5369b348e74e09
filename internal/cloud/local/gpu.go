package local

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/price"
)

// GPU is a GPU of this machine.
type GPU struct {
	// ID is its value in CUDA_VISIBLE_DEVICES: the UUID, or the index if it has none.
	ID string
	// Model is its name from the driver or the configuration.
	Model string
	// Device is its character device; nil if unknown.
	Device *Device
	// Users are the processes that compute on it.
	Users []int
}

// Hardware lists the GPUs of this machine.
type Hardware interface {
	// GPUs returns the GPUs in index order, none without a driver. An unreadable GPU is an error,
	// because a GPU in use must not be given away.
	GPUs(ctx context.Context) ([]GPU, error)
}

// ConfiguredGPU describes GPUs from the configuration, for machines without a driver.
type ConfiguredGPU struct {
	// Model is the name of the GPUs, such as L4.
	Model string `yaml:"model" form:"required"`
	// Count is the number of GPUs, 1 to 1,024.
	Count int `yaml:"count" form:"required"`
}

// ValidateGPUs checks a list of configured GPUs. Its errors are *FieldError.
func ValidateGPUs(list []ConfiguredGPU) error {
	for i, l := range list {
		switch {
		case l.Model == "" || l.Model != strings.TrimSpace(l.Model):
			return &FieldError{
				Field:   fmt.Sprintf("[%d].model", i),
				Message: fmt.Sprintf("%q is no name of a GPU such as L4", l.Model),
			}
		case l.Count < 1 || l.Count > maxGPUs:
			return &FieldError{
				Field: fmt.Sprintf("[%d].count", i), Message: fmt.Sprintf("%d is not from 1 to %d", l.Count, maxGPUs),
			}
		}
	}
	return nil
}

// SMI reads GPUs with nvidia-smi, if installed.
type SMI struct{}

// GPUs implements Hardware.
func (SMI) GPUs(ctx context.Context) ([]GPU, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, nil //nolint:nilerr // no driver, no GPU
	}
	ask := func(query string) ([]byte, error) {
		out, err := exec.CommandContext(ctx, path, query, "--format=csv,noheader").Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("nvidia-smi %s: %w: %s", query, err, bytes.TrimSpace(append(out, exit.Stderr...)))
		}
		return out, err
	}
	listed, err := ask("--query-gpu=uuid,name,pci.bus_id")
	if err != nil {
		return nil, err
	}
	used, err := ask("--query-compute-apps=gpu_uuid,pid")
	if err != nil {
		return nil, err
	}
	return parseSMI(listed, used, deviceOf)
}

// parseSMI parses the two lists of nvidia-smi: GPUs and compute processes.
func parseSMI(listed, apps []byte, device func(bus string) *Device) ([]GPU, error) {
	rows, err := table(listed, 3)
	if err != nil {
		return nil, err
	}
	var out []GPU
	for _, r := range rows {
		out = append(out, GPU{ID: r[0], Model: r[1], Device: device(r[2])})
	}
	if rows, err = table(apps, 2); err != nil {
		return nil, err
	}
	for _, r := range rows {
		pid, err := strconv.Atoi(r[1])
		i := slices.IndexFunc(out, func(g GPU) bool { return g.ID == r[0] })
		if err != nil || i < 0 {
			return nil, fmt.Errorf("nvidia-smi lists a process %q on a GPU %q that it does not list", r[1], r[0])
		}
		out[i].Users = append(out[i].Users, pid)
	}
	return out, nil
}

func table(text []byte, columns int) ([][]string, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, columns
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read what nvidia-smi says: %w", err)
	}
	return rows, nil
}

// nvidiaMajor is the major number of NVIDIA's character devices (Linux,
// Documentation/admin-guide/devices.txt); the minor number is that of the GPU.
const nvidiaMajor = 195

var deviceMinor = lazyregexp.New(`(?m)^Device Minor:\s*([0-9]+)\s*$`)

// deviceOf reads the device of a GPU from the driver's information about its PCI address.
func deviceOf(bus string) *Device {
	// nvidia-smi writes the domain with 8 digits, the driver's folder has 4.
	bus = strings.ToLower(bus)
	if i := strings.IndexByte(bus, ':'); i == 8 {
		bus = bus[4:]
	}
	if bus != filepath.Base(bus) {
		return nil
	}
	b, err := os.ReadFile(filepath.Join("/proc/driver/nvidia/gpus", bus, "information"))
	if err != nil {
		return nil
	}
	m := deviceMinor.FindSubmatch(b)
	if m == nil {
		return nil
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 8)
	if err != nil {
		return nil
	}
	return &Device{Major: nvidiaMajor, Minor: uint32(n)}
}

// gpus returns the GPUs from the driver, or else from the configuration, which no process is known
// to use.
func (p *Provider) gpus(ctx context.Context) ([]GPU, error) {
	found, err := p.options.Hardware.GPUs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the GPUs of this machine: %w", err)
	}
	if len(found) == 0 {
		for _, l := range p.options.GPUs {
			for range l.Count {
				found = append(found, GPU{ID: strconv.Itoa(len(found)), Model: l.Model})
			}
		}
	}
	return found, nil
}

// modelNoise matches words in driver names that the price book omits: vendors and connections of
// GPU and memory.
var modelNoise = lazyregexp.New(`^(NVIDIA|Tesla|GeForce|SXM[0-9]*|PCIe|PCIE|HBM[0-9]*e?)$`)

// bookName returns the price book's name of a GPU: "A100-80GB" for the driver's "NVIDIA
// A100-SXM4-80GB".
func bookName(book *price.Book, model string) string {
	known := canonicalGPU(book, model)
	if book == nil || known != model {
		return known
	}
	words := strings.FieldsFunc(model, func(r rune) bool { return r == ' ' || r == '-' })
	words = slices.DeleteFunc(words, modelNoise.MatchString)
	if a, ok := book.Accelerator(strings.Join(words, "-")); ok {
		return a.Name
	}
	return known
}

// gpusOfModel returns the GPUs of a model.
func (p *Provider) gpusOfModel(all []GPU, model string) []GPU {
	want := bookName(p.options.Prices, model)
	var out []GPU
	for _, g := range all {
		if bookName(p.options.Prices, g.Model) == want {
			out = append(out, g)
		}
	}
	return out
}

// describeModels returns the number of GPUs by model, for people.
func describeModels(all []GPU) string {
	if len(all) == 0 {
		return "no GPU"
	}
	of := map[string]int{}
	for _, g := range all {
		of[g.Model]++
	}
	parts := make([]string, 0, len(of))
	for _, model := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d × %s", of[model], model))
	}
	return strings.Join(parts, ", ")
}

// freeGPUs returns the GPUs that no machine has and no foreign process uses.
func freeGPUs(of []GPU, given map[string]bool, ours map[int]bool) []GPU {
	var out []GPU
	for _, g := range of {
		foreign := slices.ContainsFunc(g.Users, func(pid int) bool { return !ours[pid] })
		if !given[g.ID] && !foreign {
			out = append(out, g)
		}
	}
	return out
}
