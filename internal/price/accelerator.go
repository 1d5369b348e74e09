package price

import (
	"strings"
	"time"
)

// Accelerator describes one device. Values that its vendor does not publish are 0.
type Accelerator struct {
	// Name includes the memory if one chip is sold with several sizes: "A100-40GB".
	Name       string `json:"name"`
	Vendor     string `json:"vendor"`
	Generation string `json:"generation"`
	// MemoryMiB is the memory in MiB.
	MemoryMiB int64 `json:"memory_mib"`
	// MemoryBandwidthGBps is the memory bandwidth in 10^9 bytes a second.
	MemoryBandwidthGBps float64 `json:"memory_bandwidth_gbps"`
	// BF16TFLOPS is the dense (not sparse) 16-bit tensor throughput in 10^12 operations a second.
	// Precision is the format of the published value: fp16 before BF16 existed, fp32 before tensor
	// cores.
	BF16TFLOPS float64 `json:"bf16_tflops"`
	Precision  string  `json:"precision"`
	// FP8TFLOPS is the dense 8-bit float throughput; 0 if unsupported.
	FP8TFLOPS float64 `json:"fp8_tflops"`
	// TDPWatts is the thermal design power of one device, not of a board that carries two.
	TDPWatts int `json:"tdp_watts"`
	// MIG reports whether the device can be divided into instances.
	MIG bool `json:"mig"`
	// ReleaseYear is the year in which it shipped or became available for rent.
	ReleaseYear int       `json:"release_year"`
	Source      string    `json:"source"`
	AsOf        time.Time `json:"-"`
}

// NVLink reports whether machines with several of these devices connect them by NVLink: the SXM and
// NVL forms by NVIDIA's data sheets; clouds offer the others with PCIe only.
func (a Accelerator) NVLink() bool {
	model, _, _ := strings.Cut(a.Name, "-")
	switch model {
	case "V100", "A100", "H100", "GH200", "H200", "B200", "B300":
		return true
	}
	return false
}

// acceleratorAliases are the names of catalogs, drivers and vendors. "V100", "A100" and "H100"
// without memory are the smaller variant, as in the catalogs that sell both.
var acceleratorAliases = map[string]string{
	"a100": "A100-40GB", "a100-40": "A100-40GB", "a100-sxm4-40gb": "A100-40GB",
	"a100-80": "A100-80GB", "a100-sxm4-80gb": "A100-80GB",
	"a30": "A30-24GB", "a10g-24gb": "A10G", "nvidia-a10g": "A10G",
	"h100": "H100-80GB", "h100-80gb-hbm3": "H100-80GB", "h100-sxm5-80gb": "H100-80GB",
	"h100-nvl": "H100-94GB", "h200": "H200-141GB", "h200-sxm": "H200-141GB",
	"b200": "B200-180GB", "b300": "B300-288GB",
	"v100": "V100-16GB", "v100-sxm2-16gb": "V100-16GB", "v100-sxm2-32gb": "V100-32GB",
	"tesla-t4": "T4", "tesla-m60": "M60", "tesla-k80": "K80", "nvidia-l4": "L4", "nvidia-l40s": "L40S",
	"rtx-pro-server-6000": "RTX-PRO-6000", "rtx-pro-6000-blackwell": "RTX-PRO-6000", "rtxpro6000": "RTX-PRO-6000",
	"rtx-a6000": "A6000", "radeon-pro-v520": "V520",
	"tpu-v2-device": "TPU-v2", "tpu-v2-pod": "TPU-v2", "tpu-v3-device": "TPU-v3", "tpu-v3-pod": "TPU-v3",
	"tpu-v4-pod": "TPU-v4",
}

// canonical normalizes an accelerator's name for comparison.
func canonical(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "-")
}
