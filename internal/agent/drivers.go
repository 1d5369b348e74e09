package agent

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// cudaDriver is the oldest driver that runs programs of a CUDA major version.
type cudaDriver struct {
	cudaMajor int
	minDriver [3]int
	source    string
	readOn    string // date of reading the source
}

// cudaDrivers are NVIDIA's minimum drivers for minor version compatibility. Newer drivers run older
// major versions.
var cudaDrivers = []cudaDriver{
	{
		13, [3]int{580}, "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
		"2026-11-23",
	},
	{
		12, [3]int{525}, "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
		"2026-11-23",
	},
	{
		11, [3]int{450, 80, 2}, "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
		"2026-11-23",
	},
}

// parseVersion parses a version such as "550.54.14".
func parseVersion(s string) (v [3]int, err error) {
	for i, part := range strings.SplitN(strings.TrimSpace(s), ".", 3) {
		if v[i], err = strconv.Atoi(part); err != nil {
			return v, fmt.Errorf("%q is no version", s)
		}
	}
	return v, nil
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// checkDriver returns an error if a driver cannot run programs of a CUDA version.
func checkDriver(cuda, driver string) error {
	installed, err := parseVersion(driver)
	if err != nil {
		return fmt.Errorf("read the driver's version: %w", err)
	}
	wanted, err := parseVersion(cuda)
	if err != nil {
		return fmt.Errorf("read the CUDA version: %w", err)
	}
	for _, d := range cudaDrivers {
		if d.cudaMajor != wanted[0] {
			continue
		}
		if older(installed, d.minDriver) {
			least := strings.TrimSuffix(
				strings.TrimSuffix(fmt.Sprintf("%d.%02d.%02d", d.minDriver[0], d.minDriver[1], d.minDriver[2]),
					".00"), ".00")
			return fmt.Errorf(
				"CUDA %s needs NVIDIA driver %s or newer, and %s is installed (%s, read %s): update the driver "+
					"or install programs for an older CUDA", cuda, least, driver, d.source, d.readOn)
		}
		return nil
	}
	if newest := cudaDrivers[0].cudaMajor; wanted[0] > newest {
		return fmt.Errorf("CUDA %s is newer than what curfew knows (%d): whether driver %s runs it is not known", cuda,
			newest, driver)
	}
	return fmt.Errorf("CUDA %s is older than what curfew knows (%d)", cuda, cudaDrivers[len(cudaDrivers)-1].cudaMajor)
}

// frameworkProbe is a Python program that prints a line per framework: name, version, and the CUDA
// version it was built for ("None" without CUDA).
const frameworkProbe = `
import importlib.util as u
if u.find_spec("torch"):
    import torch
    print("PyTorch", torch.__version__, torch.version.cuda)
`

// driverStep checks that the installed CUDA programs fit the driver. It is skipped without GPUs.
func (b *bootstrap) driverStep(ctx context.Context) (skipped string, err error) {
	if !hasGPUs(b.options) {
		return "the session has no GPUs", nil
	}
	smi, err := exec.LookPath("nvidia-smi")
	if err != nil {
		switch {
		case nvidiaDevice(), len(b.options.Host.GPUs) > 0 &&
			b.options.Host.WholeMachine, slices.ContainsFunc(b.options.Host.GPUs, func(id string) bool {
			return strings.HasPrefix(id, "GPU-")
		}):
			return "", fmt.Errorf("the session has GPUs and there is no nvidia-smi: install the NVIDIA driver")
		case len(b.options.Host.GPUs) > 0:
			return "its GPUs are those that curfew.yaml lists: no NVIDIA driver reports them", nil
		}
		return "the machine has no NVIDIA GPU", nil
	}
	rows, err := query(ctx, smi, "--query-gpu=driver_version")
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("nvidia-smi shows no GPU")
	}
	driver := rows[0][0]
	checked := []string{"driver " + driver}
	if out, err := output(ctx, b.environ(), "nvcc", "--version"); err == nil {
		if _, rest, ok := strings.Cut(out, "release "); ok {
			cuda, _, _ := strings.Cut(rest, ",")
			if err := checkDriver(cuda, driver); err != nil {
				return "", fmt.Errorf("the CUDA toolkit: %w", err)
			}
			checked = append(checked, "CUDA toolkit "+cuda)
		}
	}
	if out, err := output(ctx, b.environ(), "python3", "-c", frameworkProbe); err == nil {
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			if f[2] == "None" {
				return "", fmt.Errorf("%s %s was built without CUDA: it does not use the GPU", f[0], f[1])
			}
			if err := checkDriver(f[2], driver); err != nil {
				return "", fmt.Errorf("%s %s: %w", f[0], f[1], err)
			}
			checked = append(checked, fmt.Sprintf("%s %s for CUDA %s", f[0], f[1], f[2]))
		}
	}
	b.addEvent("step", strings.Join(checked, ", ")+": they fit")
	return "", nil
}

// output runs a program and returns its standard output.
func output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	path, err := lookPath(name, env)
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Env = env
	var out bytes.Buffer
	c.Stdout = &out
	err = c.Run()
	return out.String(), err
}
