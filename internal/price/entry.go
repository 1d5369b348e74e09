package price

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/money"
)

// Term is the way something is bought.
type Term string

// The terms.
const (
	OnDemand Term = "on-demand"
	Spot     Term = "spot"
	// Reserved prices are read so that they can be refused by name: they cannot be compared without
	// their term and upfront payment.
	Reserved Term = "reserved"
	// CapacityBlock prices are paid up front for a time window, not by the hour.
	CapacityBlock Term = "capacity-block"
)

// Part marks an entry as one part of a price, as in some catalogs.
type Part string

// The parts of a machine's price.
const (
	Whole      Part = ""
	GPUAlone   Part = "GPU alone"
	WithoutGPU Part = "VM without GPU"
)

// Compute and Rate are the services of entries that are machines and items. Managed services use
// their names: "sagemaker", "rds:postgres", "opensearch". GPUs is the service of GPUs that are
// priced on their own.
const (
	Compute = "compute"
	Rates   = "rate"
	GPUs    = "gpu"
)

// Entry is one price with its identity.
type Entry struct {
	Cloud string // "aws"
	// Service is Compute, Rates or the name of a managed service.
	Service string
	// Type is the machine type, without SageMaker's prefix ("ml.").
	Type string
	// Item is set if Service is Rates.
	Item Item
	// Region is empty for a price that applies everywhere. Zone is set only if the source prices
	// zones separately.
	Region, Zone string
	Term         Term
	Part         Part
	// Above is the quantity above which the price applies, if a source lists each tier of an item
	// separately; 0 for a price from the first unit on.
	Above int64
	// Accelerator and AcceleratorMilli describe a machine that may be missing in the book; empty if
	// the source does not say.
	Accelerator      string
	AcceleratorMilli int64
	Price            Price
	// Line is the line in the source; 0 if unknown.
	Line int
}

// key identifies the priced unit of an entry.
type key struct {
	cloud, service, name, region string
	term                         Term
}

func (e Entry) key() key {
	return key{e.Cloud, e.Service, cmp.Or(e.Type, string(e.Item)), e.Region, e.Term}
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.cloud, b.cloud), cmp.Compare(a.service, b.service), cmp.Compare(a.name, b.name),
		cmp.Compare(a.region, b.region), cmp.Compare(a.term, b.term))
}

// String names what is priced: "aws g6.2xlarge in us-east-1, on-demand".
func (e Entry) String() string {
	s := e.Cloud
	if e.Service != Compute && e.Service != Rates {
		s += " " + e.Service
	}
	switch name := cmp.Or(e.Type, string(e.Item)); {
	case e.Part == GPUAlone:
		s += fmt.Sprintf(" %s×%s", milli(e.AcceleratorMilli), e.Accelerator)
	default:
		s += " " + name
	}
	if e.Part != Whole {
		s += " (" + string(e.Part) + ")"
	}
	if where := cmp.Or(e.Zone, e.Region); where != "" {
		s += " in " + where
	}
	return s + ", " + string(e.Term)
}

// milli prints thousandths of devices.
func milli(n int64) string {
	if n%perDevice == 0 {
		return fmt.Sprint(n / perDevice)
	}
	return fmt.Sprintf("%.3g", float64(n)/perDevice)
}

// checkComplete returns an error if an entry is incomplete.
func (e Entry) checkComplete() error {
	switch {
	case e.Cloud == "":
		return errors.New("no cloud")
	case e.Service == "":
		return errors.New("no service")
	case e.Service == Rates && e.Item == "":
		return errors.New("no item")
	case e.Service == Rates && e.Type != "":
		return errors.New("an item has no machine type")
	case e.Service == Rates && e.Item.Unit() == "":
		return fmt.Errorf("item %q is unknown", e.Item)
	case e.Service == Rates && e.Item.Unit() != e.Price.Unit:
		return fmt.Errorf("%s is priced by the %s, not by the %q", e.Item, e.Item.Unit(), e.Price.Unit)
	case e.Service != Rates && (e.Type == "" && e.Part != GPUAlone || e.Item != ""):
		return errors.New("a machine has a type and no item")
	case e.Service != Rates && e.Price.Unit != "hour":
		return fmt.Errorf("a machine is priced by the hour, not by the %q", e.Price.Unit)
	case e.Service != Rates && e.Region == "":
		return errors.New("no region")
	case e.Term != OnDemand && e.Term != Spot && e.Term != Reserved && e.Term != CapacityBlock:
		return fmt.Errorf("term %q is not on-demand, spot, reserved or capacity-block", e.Term)
	case e.Above < 0 || e.Above > 0 && e.Service != Rates:
		return fmt.Errorf("a tier above %d is none of an item", e.Above)
	case e.Price.Source == "":
		return errors.New("no source")
	case e.Price.AsOf.IsZero():
		return errors.New("no date")
	case !dated(e.Price.AsOf):
		return fmt.Errorf("%s is not a date of a price", e.Price.AsOf.Format(time.DateOnly))
	}
	for _, name := range []string{
		e.Cloud, e.Service, e.Type, string(e.Item), e.Region, e.Zone, e.Accelerator, e.Price.Source,
	} {
		if err := plain(name); err != nil {
			return err
		}
	}
	above := int64(0)
	for _, t := range e.Price.Tiers {
		if t.Above <= above {
			return fmt.Errorf("tiers do not rise: %d after %d", t.Above, above)
		}
		above = t.Above
	}
	return nil
}

// maxName bounds the length of a name, below maxField so that an update can append to a source.
const maxName = maxField - 100

// plain refuses a name that would not print or not survive a round trip.
func plain(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("%.20q… is longer than %d bytes", name, maxName)
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q holds a control character or a space at its end", name)
	}
	return nil
}

// rates returns the rates of all tiers.
func (p Price) rates() []money.Rate {
	all := []money.Rate{p.Rate}
	for _, t := range p.Tiers {
		all = append(all, t.Rate)
	}
	return all
}

// samePrice reports whether two prices cost the same, regardless of their sources.
func samePrice(a, b Price) bool {
	if a.Unit != b.Unit || a.Rate != b.Rate || len(a.Tiers) != len(b.Tiers) {
		return false
	}
	for i := range a.Tiers {
		if a.Tiers[i] != b.Tiers[i] {
			return false
		}
	}
	return true
}

// day returns the UTC date.
func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
