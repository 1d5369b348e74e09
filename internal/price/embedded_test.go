package price

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// book returns the embedded book.
func book(t testing.TB) *Book {
	t.Helper()
	b, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// regions that must have machine prices.
var regions = []string{
	"us-east-1", "us-east-2", "us-west-2", "ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "ap-northeast-1",
	"ap-southeast-2",
}

func TestEmbeddedPrices(t *testing.T) {
	b := book(t)
	for _, tc := range []struct {
		name, want string
		price      func() (Price, error)
	}{
		{"g6.2xlarge", "0.9776", func() (Price, error) { return b.OnDemand("g6.2xlarge", "us-east-1") }},
		{"p4d.24xlarge", "21.957642", func() (Price, error) { return b.OnDemand("p4d.24xlarge", "us-east-1") }},
		{"p5.48xlarge in Tokyo", "68.80", func() (Price, error) {
			return b.OnDemand("p5.48xlarge", "ap-northeast-1")
		}},
		{"a fraction of an L4", "0.2375", func() (Price, error) { return b.OnDemand("g6f.xlarge", "us-east-1") }},
		{"p2.xlarge", "0.90", func() (Price, error) { return b.OnDemand("p2.xlarge", "us-east-1") }},
		{"c5.9xlarge in proportion", "1.728", func() (Price, error) { return b.OnDemand("c5.9xlarge", "eu-west-1") }},
		{"t3.nano in proportion", "0.0052", func() (Price, error) { return b.OnDemand("t3.nano", "us-east-1") }},
		{"Graviton", "0.1632", func() (Price, error) { return b.OnDemand("m7g.xlarge", "us-east-1") }},
		{"AMD", "0.0765", func() (Price, error) { return b.OnDemand("c6a.large", "us-east-1") }},
		{"with local disks", "0.343", func() (Price, error) { return b.OnDemand("i4i.xlarge", "us-east-1") }},
		{"metal at its own price", "4.7124", func() (Price, error) {
			return b.OnDemand("c7i.metal-24xl", "us-east-1")
		}},
		{"spot", "8.0001", func() (Price, error) { return b.Spot("p4d.24xlarge", "us-east-1") }},
		{"SageMaker", "1.408", func() (Price, error) { return b.Managed("sagemaker", "g5.xlarge", "us-west-2") }},
		{"SageMaker with its prefix", "0.05", func() (Price, error) {
			return b.Managed("sagemaker", "ml.t3.medium", "us-east-1")
		}},
		{"PostgreSQL", "0.178", func() (Price, error) {
			return b.Managed("rds:postgres", "db.m5.large", "us-east-1")
		}},
		{"OpenSearch", "0.142", func() (Price, error) {
			return b.Managed("opensearch", "m5.large.search", "us-east-1")
		}},
		{"gp3", "0.08", func() (Price, error) { return b.Rate(ItemGP3, "us-east-1") }},
		{"gp3 in Frankfurt", "0.0952", func() (Price, error) { return b.Rate(ItemGP3, "eu-central-1") }},
		{"S3 Standard, its first tier", "0.023", func() (Price, error) { return b.Rate(ItemS3Standard, "us-east-1") }},
		{"a price of all regions", "0.10", func() (Price, error) { return b.Rate(ItemECR, "eu-north-1") }},
	} {
		p, err := tc.price()
		if err != nil || p.Rate.String() != tc.want {
			t.Errorf("%s: got %s, %v; want %s", tc.name, p.Rate, err, tc.want)
		}
	}
}

// TestGeneralFamilies checks that the book has the t, m, c, r, i and d families of Intel, AMD and
// Graviton in all sizes from large up.
func TestGeneralFamilies(t *testing.T) {
	b := book(t)
	for _, family := range strings.Fields("t2 t3 t3a t4g m4 m5 m5a m5ad m5d m5dn m5n m6a m6g m6gd m6i m6id m7a m7g " +
		"m7gd m7i m8a m8g m8i c4 c5 c5a c5ad c5d c5n c6a c6g c6gd c6gn c6i c6id " +
		"c7a c7g c7gd c7gn c7i c8a c8g c8i r4 r5 r5a r5b r5d r5n r6a r6g r6gd r6i r6id r7a r7g r7gd r7i r8a r8g r8i i3 " +
		"i3en i4g i4i i7i i7ie i8g d2 d3 d3en") {
		sizes := 0
		for _, m := range b.Machines() {
			if m.Family != family {
				continue
			}
			sizes++
			if p, err := b.OnDemand(m.Type, "us-east-1"); err != nil || p.Source == "" || p.AsOf.IsZero() {
				t.Errorf("%s: %+v, %v", m.Type, p, err)
			}
			if arm := strings.Contains(family[2:], "g"); arm != (m.Arch == "arm64") {
				t.Errorf("%s is %s", m.Type, m.Arch)
			}
		}
		if sizes < 4 {
			t.Errorf("%d sizes of %s", sizes, family)
		}
	}
}

func TestMonthOfArchivedData(t *testing.T) {
	b := book(t)
	month := func(item Item) money.Amount {
		p, err := b.Rate(item, "us-east-1")
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Cost(10_000, 1)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if saved := month(ItemS3Standard) - month(ItemS3Glacier); saved.Cents() != "194.00" {
		t.Errorf("10 TB moved from Standard to Glacier save %s a month, want 194.00", saved.Cents())
	}
}

func TestUnpriced(t *testing.T) {
	b := book(t)
	for _, tc := range []struct {
		name  string
		price func() (Price, error)
		says  []string
	}{
		{"p5e has no on-demand price", func() (Price, error) {
			return b.OnDemand("p5e.48xlarge", "us-east-2")
		}, []string{"on-demand price of p5e.48xlarge in us-east-2"}},
		{"trn2 has no on-demand price", func() (Price, error) {
			return b.OnDemand("trn2.48xlarge", "us-east-2")
		}, nil},
		{"trn1 in Sydney", func() (Price, error) { return b.OnDemand("trn1.32xlarge", "ap-southeast-2") }, nil},
		{"the middle of two far zones", func() (Price, error) {
			return b.Spot("p5e.48xlarge", "us-east-2")
		}, []string{"spot price"}},
		{"spot without discount", func() (Price, error) { return b.Spot("p5.48xlarge", "ca-central-1") }, nil},
		{"metal that is not in proportion", func() (Price, error) {
			return b.OnDemand("c7i.metal-24xl", "eu-west-1")
		}, nil},
		{"an unknown type", func() (Price, error) {
			return b.OnDemand("x9.huge", "us-east-1")
		}, []string{"x9.huge", "not in the price book", "curfew price update"}},
		{"an unknown region", func() (Price, error) {
			return b.OnDemand("g6.xlarge", "mars-1")
		}, []string{"mars-1", "curfew price update"}},
		{"an unknown service", func() (Price, error) { return b.Managed("mainframe", "m5.large", "us-east-1") }, nil},
		{"a database of no engine", func() (Price, error) {
			return b.Managed("rds", "db.m5.large", "us-east-1")
		}, nil},
		{"an unknown item", func() (Price, error) {
			return b.Rate("ebs:gp9", "us-east-1")
		}, []string{"ebs:gp9", "us-east-1"}},
		{"no type", func() (Price, error) { return b.OnDemand("", "") }, []string{`""`}},
		{"an empty book", func() (Price, error) { return new(Book).OnDemand("g6.xlarge", "us-east-1") }, nil},
	} {
		p, err := tc.price()
		if !errors.Is(err, ErrUnpriced) || p.Rate != 0 || p.Source != "" {
			t.Errorf("%s: got %+v, %v; want ErrUnpriced", tc.name, p, err)
			continue
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: the error %q does not say %q", tc.name, err, s)
			}
		}
	}
}

func TestEveryEntryIsComplete(t *testing.T) {
	b := book(t)
	for _, e := range b.Entries() {
		if reason := Check(e); reason != "" {
			t.Errorf("%s: %s", e, reason)
		}
		if e.Service == Compute {
			if _, ok := b.Machine(e.Type); !ok {
				t.Errorf("%s is priced and nothing is known of it", e.Type)
			}
			if !slices.Contains(regions, e.Region) {
				t.Errorf("%s is in a region that is not of the book", e)
			}
		}
		if e.Term == Spot {
			if od, err := b.OnDemand(e.Type, e.Region); err == nil && e.Price.Rate >= od.Rate {
				t.Errorf("%s is no discount", e)
			}
		}
	}
	if own := slices.ContainsFunc(b.Entries(), b.Own); own {
		t.Error("the embedded book holds prices of the user")
	}
}

// TestEmbeddedPricesPassQuarantine updates the book with itself: embedded prices must pass the checks of
// updates.
func TestEmbeddedPricesPassQuarantine(t *testing.T) {
	b := book(t)
	for _, from := range []*Book{b, {machines: b.machines, accelerators: b.accelerators}} {
		next, accepted, refused := from.Update(slices.Values(b.Entries()))
		for _, r := range refused {
			t.Errorf("%s at %s: %s", r.Entry, r.Entry.Price.Rate, r.Reason)
		}
		if len(accepted) != len(b.Entries()) || len(next.Entries()) != len(b.Entries()) {
			t.Errorf("%d of %d entries were accepted and %d are held", len(accepted),
				len(b.Entries()), len(next.Entries()))
		}
	}
}

func TestEveryItemIsPriced(t *testing.T) {
	b := book(t)
	for _, item := range []Item{
		ItemGP2, ItemGP3, ItemIO1, ItemIO2, ItemST1, ItemSC1, ItemMagnetic, ItemGP3IOPS,
		ItemGP3Throughput, ItemIO1IOPS,
		ItemIO2IOPS,
		ItemSnapshot, ItemSnapshotArchive, ItemAddress, ItemNAT, ItemNATData, ItemLBApplication, ItemLBNetwork,
		ItemLBGateway, ItemLBClassic,
		ItemS3Standard, ItemS3StandardIA, ItemS3OneZoneIA, ItemS3IntelligentTiering, ItemS3GlacierIR, ItemS3Glacier,
		ItemS3DeepArchive, ItemS3ExpressOneZone,
		ItemS3ToStandardIA, ItemS3ToOneZoneIA, ItemS3ToIntelligentTiering, ItemS3ToGlacierIR, ItemS3ToGlacier,
		ItemS3ToDeepArchive,
		ItemS3FromStandardIA, ItemS3FromOneZoneIA, ItemS3FromGlacierIR, ItemS3FromGlacier,
		ItemS3FromDeepArchive, ItemS3List,
		ItemS3Monitoring,
		ItemLogsIngest, ItemLogsIngestInfrequent, ItemLogsStorage, ItemECR, ItemEFSStandard, ItemEFSIA, ItemEFSArchive,
		ItemRDSGP2, ItemRDSGP3, ItemOpenSearchGP,
		ItemSageMakerStorage, ItemSecret, ItemGetMetricData, ItemMetric, ItemCostExplorer, ItemEgressInternet,
		ItemEgressRegion, ItemEgressZone,
		"fsx:lustre:125:ssd", "fsx:windows:ssd", "fsx:ontap:ssd", "fsx:openzfs:ssd",
	} {
		if _, err := b.Rate(item, "us-east-1"); err != nil {
			t.Error(err)
		}
	}
	for _, region := range regions {
		for _, item := range []Item{
			ItemGP2, ItemGP3, ItemS3Standard, ItemS3StandardIA, ItemNAT, ItemAddress, ItemLBApplication, ItemECR,
			ItemEgressInternet,
		} {
			if _, err := b.Rate(item, region); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMachineFacts(t *testing.T) {
	b := book(t)
	for _, tc := range []struct {
		machine     string
		vcpus       int
		gib         float64
		accelerator string
		gpus        int
	}{
		{"g3s.xlarge", 4, 30.5, "M60", 1}, {"g4ad.16xlarge", 64, 256, "V520", 4}, {"g4dn.metal", 96, 384, "T4", 8},
		{"g5g.16xlarge", 64, 128, "T4G", 2}, {"g6f.large", 2, 8, "L4", 1},
		{"g7e.48xlarge", 192, 2048, "RTX-PRO-6000", 8},
		{"p2.16xlarge", 64, 732, "K80", 16}, {"p3dn.24xlarge", 96, 768, "V100-32GB", 8},
		{"p4d.24xlarge", 96, 1152, "A100-40GB", 8},
		{"p5.4xlarge", 16, 256, "H100-80GB", 1}, {"p6-b300.48xlarge", 192, 4096, "B300-288GB", 8},
		{"inf1.24xlarge", 96, 192, "Inferentia", 16},
		{"inf2.48xlarge", 192, 768, "Inferentia2", 12}, {"trn1n.32xlarge", 128, 512, "Trainium", 16},
		{"trn2.48xlarge", 192, 2048, "Trainium2", 16},
		{"m5.8xlarge", 32, 128, "", 0}, {"t3.micro", 2, 1, "", 0}, {"r6i.32xlarge", 128, 1024, "", 0},
	} {
		m, ok := b.Machine(tc.machine)
		if !ok || m.VCPUs != tc.vcpus || m.MemoryMiB != int64(tc.gib*1024) || m.Accelerator != tc.accelerator ||
			m.GPUs() != tc.gpus {
			t.Errorf("%s: got %+v, want %+v", tc.machine, m, tc)
		}
	}
	if m, _ := b.Machine("trn2.48xlarge"); m.AcceleratorMemoryMiB != 96<<10 {
		t.Errorf("a Trainium2 device has %d MiB, want the documented 96 GiB", m.AcceleratorMemoryMiB)
	}
	machines := b.Machines()
	for i, m := range machines {
		a, ok := b.Accelerator(m.Accelerator)
		switch {
		case m.Source == "" || m.AsOf.IsZero() || m.Cloud != AWS || m.Arch == "" ||
			(m.ReleaseYear == 0 && m.Accelerator != "") || !strings.HasPrefix(m.Type, m.Family+"."):
			t.Errorf("%s is not whole: %+v", m.Type, m)
		case m.Accelerator != "" && !ok:
			t.Errorf("%s has an accelerator %q that is not known", m.Type, m.Accelerator)
		case m.Accelerator != "" && m.AcceleratorMilli >= perDevice && m.AcceleratorMemoryMiB != a.MemoryMiB:
			t.Errorf("%s has %d MiB a device, %s has %d", m.Type, m.AcceleratorMemoryMiB, a.Name, a.MemoryMiB)
		case i > 0 && machines[i-1].Family == m.Family && machines[i-1].VCPUs > m.VCPUs:
			t.Errorf("%s stands after %s", m.Type, machines[i-1].Type)
		}
	}
}

func TestAcceleratorFacts(t *testing.T) {
	b := book(t)
	for _, tc := range []struct{ name, want string }{
		{"A100-40GB", "A100-40GB"}, {"A100", "A100-40GB"}, {"a100-80", "A100-80GB"}, {"A30", "A30-24GB"},
		{"H100-NVL", "H100-94GB"},
		{"H100", "H100-80GB"}, {"Tesla T4", "T4"}, {"V100", "V100-16GB"},
		{"TPU v2 pod", "TPU-v2"}, {"TPU v5e", "TPU-v5e"},
		{" L40S ", "L40S"},
	} {
		if a, ok := b.Accelerator(tc.name); !ok || a.Name != tc.want {
			t.Errorf("%q is %q, want %q", tc.name, a.Name, tc.want)
		}
	}
	for alias, name := range acceleratorAliases {
		if a, ok := b.Accelerator(alias); !ok || a.Name != name || alias != canonical(alias) {
			t.Errorf("the alias %q is of %q, which is not known", alias, name)
		}
	}
	if a, ok := b.Accelerator(""); ok {
		t.Errorf("no name is %q", a.Name)
	}
	mig := []string{"A30-24GB", "A100-40GB", "A100-80GB", "H100-80GB", "H100-94GB", "H200-141GB", "B200-180GB"}
	for _, a := range b.Accelerators() {
		if slices.Contains(mig, a.Name) && !a.MIG {
			t.Errorf("%s can be divided", a.Name)
		}
		if a.MIG && a.BF16TFLOPS == 0 || a.FP8TFLOPS > 0 && a.FP8TFLOPS < a.BF16TFLOPS || a.Precision == "" ||
			a.ReleaseYear < 2010 {
			t.Errorf("%s is not whole: %+v", a.Name, a)
		}
	}
}
