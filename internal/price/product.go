package price

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Errors of ParseProduct for documents without a usable price.
var (
	// ErrNotHeld is wrapped for a product of a kind that the book leaves out: another operating
	// system, dedicated tenancy, a license, another service.
	ErrNotHeld = errors.New("not a kind of price the book holds")
	// ErrRefused is wrapped for a product with an unusable price: zero, or a capacity block. The
	// entry identifies the product.
	ErrRefused = errors.New("refused")
)

// product is the decoded part of an AWS Price List document. See "Reading the price list files",
// AWS Billing user guide.
type product struct {
	PublicationDate string `json:"publicationDate"`
	ServiceCode     string `json:"serviceCode"`
	Product         struct {
		ProductFamily string            `json:"productFamily"`
		Attributes    map[string]string `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			EffectiveDate   string `json:"effectiveDate"`
			PriceDimensions map[string]struct {
				Unit         string            `json:"unit"`
				BeginRange   string            `json:"beginRange"`
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// ParseProduct reads one document of the AWS Price List, as in PriceList of GetProducts: machines
// and items in the parts that [Lists] names. A product shared by several items yields an entry for
// each. Other products wrap ErrNotHeld; a zero price or a capacity block wraps ErrRefused. The date
// is that of publication, or else the term's.
func ParseProduct(document []byte) ([]Entry, error) {
	if len(document) > maxDocument {
		return nil, fmt.Errorf("read price list product: the document is over %d MiB", maxDocument>>20)
	}
	var p product
	if err := json.Unmarshal(document, &p); err != nil {
		return nil, fmt.Errorf("read price list product: %w", jsonError(document, err))
	}
	e, as, err := p.identify()
	if err != nil {
		return nil, fmt.Errorf("read price list product: %w", err)
	}
	if err := p.price(&e, as); err != nil {
		return nil, fmt.Errorf("read price list product: %s: %w", e, err)
	}
	entries := []Entry{e}
	for i := 1; i < len(as.items); i++ {
		next := e
		next.Item = as.items[i]
		entries = append(entries, next)
	}
	return entries, nil
}

// identify returns the entry of the product and its listed item.
func (p product) identify() (Entry, listedItem, error) {
	a := p.Product.Attributes
	e := Entry{Cloud: AWS, Service: Rates, Region: a["regionCode"], Term: OnDemand}
	hours := listedItem{unit: listHours}
	if e.Region == "" || (a["locationType"] != "" && a["locationType"] != "AWS Region") {
		return e, hours, fmt.Errorf("%q is not a region: %w", cmp.Or(a["location"], e.Region), ErrNotHeld)
	}
	usage := bareUsage(a["usagetype"])
	notHeld := fmt.Errorf("%q in %s: %w", cmp.Or(a["usagetype"], p.Product.ProductFamily), e.Region, ErrNotHeld)
	switch family := p.Product.ProductFamily; {
	case a["servicecode"] == "AmazonRedshift":
		// Multi-zone nodes have different usage types.
		if e.Type = a["instanceType"]; e.Type == "" || usage != "Node:"+e.Type {
			return e, hours, notHeld
		}
		e.Service = "redshift"
		return e, hours, nil
	case family == "Cache Instance":
		e.Service, e.Type = cachePrefix+strings.ToLower(a["cacheEngine"]), a["instanceType"]
		if e.Type == "" || usage != "NodeUsage:"+e.Type {
			return e, hours, notHeld
		}
		hours.free = true // hours of a reservation
		return e, hours, nil
	case family == "Database Instance":
		service, ok := p.database()
		if !ok {
			return e, hours, notHeld
		}
		e.Service, e.Type = service, a["instanceType"]
		return e, hours, nil
	case strings.HasPrefix(usage, "ESInstance:"):
		if e.Type = a["instanceType"]; !strings.HasSuffix(e.Type, ".search") {
			return e, hours, notHeld
		}
		e.Service = "opensearch"
		return e, hours, nil
	case strings.HasPrefix(family, "Compute Instance"):
		e.Service, e.Type = Compute, a["instanceType"]
		if err := held(a); err != nil {
			return e, hours, err
		}
		if a["marketoption"] == "CapacityBlock" {
			e.Term = CapacityBlock
			return e, hours, fmt.Errorf("%s is a capacity block, paid up front for a window: %w", e.Type, ErrRefused)
		}
		return e, hours, nil
	case family == "ML Instance":
		e.Service = "sagemaker"
		e.Type = strings.TrimPrefix(cmp.Or(a["instanceName"], a["instanceType"]), "ml.")
		// The same machine is listed once per SageMaker component.
		if family, size, ok := strings.Cut(e.Type, "."); ok {
			size, _, _ = strings.Cut(size, "-")
			e.Type = family + "." + size
		}
		if e.Type == "" {
			return e, hours, fmt.Errorf("a machine of SageMaker without its name: %w", ErrNotHeld)
		}
		return e, hours, nil
	}
	l, ok := p.listedAs()
	if !ok {
		return e, hours, notHeld
	}
	e.Item, e.Above = l.items[0], l.above
	return e, l, nil
}

// cachePrefix is the prefix of cache services, before the engine.
const cachePrefix = "elasticache:"

// held returns an error unless a machine's product is the supported one: Linux, shared tenancy, no
// license, used capacity.
func held(a map[string]string) error {
	for _, must := range []struct{ attribute, value string }{
		{"operatingSystem", "Linux"}, {"tenancy", "Shared"}, {"preInstalledSw", "NA"},
		{"capacitystatus", "Used"},
	} {
		if got := a[must.attribute]; got != must.value {
			return fmt.Errorf("%s with %s %q: %w", cmp.Or(a["instanceType"], "a machine"),
				must.attribute, got, ErrNotHeld)
		}
	}
	if a["instanceType"] == "" {
		return fmt.Errorf("no instanceType: %w", ErrNotHeld)
	}
	return nil
}

// price reads the rates of the only on-demand term, tiers ascending.
func (p product) price(e *Entry, as listedItem) error {
	if len(p.Terms.OnDemand) != 1 {
		return fmt.Errorf("it has %d on-demand terms: %w", len(p.Terms.OnDemand), ErrRefused)
	}
	for _, term := range p.Terms.OnDemand {
		e.Price = Price{Unit: "hour", Source: "AWS Price List"}
		if e.Service == Rates {
			e.Price.Unit = e.Item.Unit()
		}
		for _, s := range []string{p.PublicationDate, term.EffectiveDate} {
			if d, err := parseDate(s); err == nil {
				e.Price.AsOf = d
				break
			}
		}
		if e.Price.AsOf.IsZero() {
			return errors.New("it has no date")
		}
		var tiers []Tier
		for _, d := range term.PriceDimensions {
			if !sameUnit(d.Unit, as.unit) {
				return fmt.Errorf("it is priced by %q, not by %q: %w", d.Unit, as.unit, ErrRefused)
			}
			usd, ok := d.PricePerUnit["USD"]
			if !ok {
				return fmt.Errorf("it has no price in USD: %w", ErrNotHeld)
			}
			r, err := parseUSD(usd)
			if err != nil {
				return fmt.Errorf("price %q: %w", usd, err)
			}
			if r == 0 && len(term.PriceDimensions) > 1 && as.free {
				continue
			}
			if as.per > 1 {
				if r%money.Rate(as.per) != 0 {
					return fmt.Errorf("%s for %d is no whole price of one: %w", r, as.per, ErrRefused)
				}
				r /= money.Rate(as.per)
			}
			if r <= 0 {
				return fmt.Errorf("a price of %s is not a price: %w", r, ErrRefused)
			}
			above, err := beginning(d.BeginRange)
			if err != nil {
				return err
			}
			tiers = append(tiers, Tier{Above: above, Rate: r})
		}
		slices.SortFunc(tiers, func(x, y Tier) int { return cmp.Compare(x.Above, y.Above) })
		if len(tiers) > 0 && len(tiers) < len(term.PriceDimensions) {
			tiers[0].Above = 0 // after the free allowance
		}
		if len(tiers) == 0 || tiers[0].Above != 0 {
			return fmt.Errorf("it has no price from zero: %w", ErrRefused)
		}
		e.Price.Rate = tiers[0].Rate
		if len(tiers) > 1 {
			e.Price.Tiers = tiers[1:]
		}
	}
	return e.checkComplete()
}

// sameUnit reports whether a unit of the price list is the expected one; hours have several names.
func sameUnit(got, want string) bool {
	if want == listHours && (strings.EqualFold(got, "hours") || strings.EqualFold(got, "hour")) {
		return true
	}
	return strings.EqualFold(got, want)
}

// beginning reads the start of a tier in whole units.
func beginning(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f != math.Trunc(f) || f >= 1<<53 {
		return 0, fmt.Errorf("a tier begins at %q", s)
	}
	return int64(f), nil
}

// SpotEntry is an AWS spot price in one zone from the EC2 spot price history: dollars per hour,
// Linux/UNIX. [Book.Update] uses the median of the zones as the region's price.
func SpotEntry(machineType, region, zone, usd string, at time.Time) (Entry, error) {
	r, err := parseUSD(usd)
	if err != nil {
		return Entry{}, fmt.Errorf("spot price %q of %s in %s: %w", usd, machineType, zone, err)
	}
	return Entry{Cloud: AWS, Service: Compute, Type: machineType, Region: region, Zone: zone, Term: Spot,
		Price: Price{Unit: "hour", Rate: r, Source: "EC2 spot price history", AsOf: day(at)}}, nil
}
