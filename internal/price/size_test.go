package price

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestSizeOfTypes(t *testing.T) {
	b := book(t)
	for _, m := range b.Machines() {
		s := b.Size(m.Type)
		if n, known := s.GPUs.Get(); !known || n != m.GPUs() || (n > 0) != (s.GPU != "") {
			t.Errorf("%s: %+v, the book has %+v", m.Type, s, m)
		}
	}
	for _, looks := range []string{"", "p9.48xlarge", "g99.large", "t9.micro", "8xH100-80GB", "ml.m5.large"} {
		if diff := cmp.Diff(inventory.Size{}, b.Size(looks)); diff != "" {
			t.Errorf("%q, which the book does not hold (-want +got):\n%s", looks, diff)
		}
	}
}

func TestFill(t *testing.T) {
	b := book(t)
	machine := func(kind string, size inventory.Size) *inventory.Resource {
		return &inventory.Resource{Kind: inventory.KindInstance, Type: kind, Size: size, Detail: &inventory.Instance{}}
	}
	endpoint := func(variants ...inventory.Variant) *inventory.Resource {
		return &inventory.Resource{Kind: inventory.KindEndpoint, Detail: &inventory.Endpoint{Variants: variants}}
	}
	gpus := func(n int) inventory.Fact[int] { return inventory.Known(n) }
	for _, tc := range []struct {
		name   string
		of     *inventory.Resource
		gpus   inventory.Fact[int]
		gpu    string
		memory int64 // GiB; 0 unknown
		cpus   int64 // 0 unknown
	}{
		{"the book's", machine("p4d.24xlarge", inventory.Size{}), gpus(8), "A100-40GB", 40, 96},
		{"an unknown type", machine("p9.48xlarge", inventory.Size{}), inventory.Fact[int]{}, "", 0, 0},
		{"what the adapter says stays", machine("p4d.24xlarge", inventory.Size{GPUs: gpus(0)}), gpus(0), "", 0, 96},
		{
			"a provider's name of what the book knows",
			machine("p4d.24xlarge", inventory.Size{
				GPUs: gpus(8), GPU: "A100", GPUMemory: inventory.Known(int64(39 << 30)),
			}),
			gpus(8), "A100-40GB", 39, 96,
		},
		{
			"a provider's name told by its memory",
			machine("p9.48xlarge", inventory.Size{
				GPUs: gpus(8), GPU: "A100", GPUMemory: inventory.Known(int64(79 << 30)),
			}),
			gpus(8), "A100-80GB", 79, 0,
		},
		{
			"a name with its memory",
			machine("mine", inventory.Size{GPUs: gpus(2), GPU: "H100"}), gpus(2), "H100-80GB",
			80, 0,
		},
		{"a name of nothing", machine("mine", inventory.Size{GPUs: gpus(2), GPU: "Abacus"}), gpus(2), "Abacus", 0, 0},
		{"an endpoint", endpoint(inventory.Variant{Type: "g4dn.12xlarge", Count: 3}), gpus(4), "T4", 16, 48},
		{
			"an endpoint of two types", endpoint(inventory.Variant{Type: "g4dn.xlarge"},
				inventory.Variant{Type: "m5.large"}),
			gpus(1), "T4", 16, 6,
		},
		{
			"an endpoint of two models",
			endpoint(inventory.Variant{Type: "g4dn.xlarge"}, inventory.Variant{Type: "p4d.24xlarge"}), gpus(9), "", 0,
			100,
		},
		{
			"an endpoint with an unknown variant",
			endpoint(inventory.Variant{Type: "g4dn.xlarge"}, inventory.Variant{Type: "p9.48xlarge"}),
			inventory.Fact[int]{},
			"", 0, 0,
		},
		{"serverless", endpoint(inventory.Variant{Serverless: true}), gpus(0), "", 0, 0},
		{"an endpoint that could not be read", endpoint(), inventory.Fact[int]{}, "", 0, 0},
	} {
		b.Fill(tc.of)
		s := tc.of.Size
		if !s.GPUs.Equal(tc.gpus) || s.GPU != tc.gpu || s.GPUMemory.Or(0)>>30 != tc.memory ||
			s.MilliCPUs.Or(0) != tc.cpus*1000 {
			t.Errorf("%s: %+v", tc.name, s)
		}
		again := s
		if b.Fill(tc.of); !cmp.Equal(again, tc.of.Size) {
			t.Errorf("%s: filled again: %s", tc.name, cmp.Diff(again, tc.of.Size))
		}
	}
}
