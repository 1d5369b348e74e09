package agent

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// ErrNoGPUs means that the machine has no GPUs.
var ErrNoGPUs = errors.New("the machine has no GPUs")

// SMI reads GPUs with nvidia-smi.
type SMI struct {
	// Command is the path of the program; empty finds nvidia-smi on the PATH.
	Command string
}

// Read implements GPUs.
func (s SMI) Read(ctx context.Context) ([]GPU, error) {
	command := s.Command
	if command == "" {
		path, err := exec.LookPath("nvidia-smi")
		if err != nil {
			if nvidiaDevice() {
				return nil, errors.New("the machine has an NVIDIA GPU and no nvidia-smi")
			}
			return nil, ErrNoGPUs
		}
		command = path
	}
	rows, err := query(ctx, command, "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total,power.draw")
	if err != nil {
		return nil, err
	}
	users, err := query(ctx, command, "--query-compute-apps=gpu_uuid,pid")
	if err != nil {
		return nil, err
	}
	return parseSMI(rows, users)
}

// GPUErrors is a reader of GPUs that counts their memory errors.
type GPUErrors interface {
	// Errors returns the uncorrected memory errors of each GPU since the driver was loaded, by index and
	// UUID. GPUs without ECC are left out.
	Errors(ctx context.Context) (map[string]int64, error)
}

// Errors implements GPUErrors.
func (s SMI) Errors(ctx context.Context) (map[string]int64, error) {
	command := s.Command
	if command == "" {
		path, err := exec.LookPath("nvidia-smi")
		if err != nil {
			return nil, ErrNoGPUs
		}
		command = path
	}
	rows, err := query(ctx, command, "--query-gpu=index,uuid,ecc.errors.uncorrected.volatile.total")
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for _, r := range rows {
		if len(r) < 3 {
			continue
		}
		if n, err := strconv.ParseInt(r[2], 10, 64); err == nil { // [N/A] without ECC
			counts[r[0]], counts[r[1]] = n, n
		}
	}
	return counts, nil
}

// lostGPU are texts of nvidia-smi about a GPU that does not answer (Xid 79 and others).
var lostGPU = []string{
	"GPU is lost", "fallen off the bus", "Unable to determine the device handle", "GPU requires reset",
}

// gpuErrors counts the memory errors of the session's GPUs; nil where they are not counted.
func (b *bootstrap) gpuErrors(ctx context.Context) (map[string]int64, error) {
	reader, counts := b.options.GPUs.(GPUErrors)
	if !counts || !hasGPUs(b.options) {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, gpuErrorsTimeout)
	defer stop()
	return reader.Errors(ctx)
}

// gpuErrorsTimeout bounds a look at the errors of GPUs: nvidia-smi may hang on a broken one.
const gpuErrorsTimeout = 20 * time.Second

// gpuFault describes the fault of a GPU since the command began; empty for none.
func (h *host) gpuFault(before map[string]int64) string {
	now, err := h.bootstrap.gpuErrors(context.Background())
	if err != nil {
		for _, text := range lostGPU {
			if strings.Contains(err.Error(), text) {
				return plain.Line(err.Error())
			}
		}
		return ""
	}
	own := h.options.Host.GPUs
	for _, gpu := range slices.Sorted(maps.Keys(now)) {
		was, known := before[gpu]
		if known && now[gpu] > was && (len(own) == 0 || slices.Contains(own, gpu)) {
			return fmt.Sprintf("nvidia-smi counts %s of GPU %s since it began",
				plain.Count(int(now[gpu]-was), "uncorrected memory error"), gpu)
		}
	}
	return ""
}

// query runs nvidia-smi and parses its CSV output.
func query(ctx context.Context, command, what string) ([][]string, error) {
	c := exec.CommandContext(ctx, command, what, "--format=csv,noheader,nounits")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		said := strings.TrimSpace(string(out) + stderr.String())
		return nil, fmt.Errorf("nvidia-smi: %w: %.200s", err, said)
	}
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	return rows, nil
}

// parseSMI combines the rows about GPUs with those about processes on them.
func parseSMI(rows, apps [][]string) ([]GPU, error) {
	processes := map[string]float64{}
	for _, u := range apps {
		processes[u[0]]++
	}
	var list []GPU
	for _, r := range rows {
		if len(r) < 6 {
			return nil, fmt.Errorf("nvidia-smi: a line has %d fields, not 6", len(r))
		}
		g := GPU{Index: r[0], UUID: r[1], Signals: map[usage.Signal]float64{usage.Processes: processes[r[1]]}}
		for i, s := range []usage.Signal{usage.GPUUtil, usage.MemUsed, usage.MemTotal, usage.Power} {
			v, err := strconv.ParseFloat(r[2+i], 64)
			if err != nil {
				continue // [N/A] means not measured
			}
			if s == usage.MemUsed || s == usage.MemTotal {
				v *= 1 << 20
			}
			g.Signals[s] = v
		}
		list = append(list, g)
	}
	if len(list) == 0 {
		return nil, errors.New("nvidia-smi shows no GPU")
	}
	return list, nil
}

// hasGPUs reports whether the session may have GPUs.
func hasGPUs(o *Options) bool { return o.GPUs != nil && (o.Host.WholeMachine || len(o.Host.GPUs) > 0) }

// nvidiaDevice reports whether the machine has an NVIDIA PCI display device (vendor 10de).
func nvidiaDevice() bool {
	entries, err := os.ReadDir("/sys/bus/pci/devices")
	if err != nil {
		return false
	}
	for _, e := range entries {
		vendor, err := os.ReadFile("/sys/bus/pci/devices/" + e.Name() + "/vendor")
		class, _ := os.ReadFile("/sys/bus/pci/devices/" + e.Name() + "/class")
		if err == nil && strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}
