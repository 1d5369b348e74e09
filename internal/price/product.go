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
)

// What ParseProduct returns for documents that hold no usable price.
var (
	// ErrNotHeld is wrapped for a product of a kind that the book does not hold:
	// another operating system, dedicated tenancy, a license, another service.
	ErrNotHeld = errors.New("not a kind of price the book holds")
	// ErrRefused is wrapped for a product whose price is not one: zero, a capacity
	// block. The entry says which product it was.
	ErrRefused = errors.New("refused")
)

// product is the part of an AWS Price List document that is read.
// See "Reading the price list files", AWS Billing user guide.
type product struct {
	PublicationDate string `json:"publicationDate"`
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

// ParseProduct reads one document of the AWS Price List, as GetProducts returns
// them in PriceList: Linux machines of EC2 on shared tenancy without a license,
// SageMaker machines, nodes of Redshift and ElastiCache, EBS volumes, IOPS and snapshots, NAT gateways, and S3's
// storage classes. Other products wrap ErrNotHeld; a price of zero or a capacity
// block wraps ErrRefused. The date is that of publication, or else the term's.
func ParseProduct(document []byte) (Entry, error) {
	if len(document) > maxDocument {
		return Entry{}, fmt.Errorf("read price list product: the document is over %d MiB", maxDocument>>20)
	}
	var p product
	if err := json.Unmarshal(document, &p); err != nil {
		return Entry{}, fmt.Errorf("read price list product: %w", jsonError(document, err))
	}
	e, unit, err := p.identify()
	if err != nil {
		return Entry{}, fmt.Errorf("read price list product: %w", err)
	}
	if err := p.price(&e, unit); err != nil {
		return e, fmt.Errorf("read price list product: %s: %w", e, err)
	}
	return e, nil
}

// storageClasses of S3 by usage type, without the region's prefix.
var storageClasses = map[string]Item{
	"TimedStorage-ByteHrs":        ItemS3Standard,
	"TimedStorage-SIA-ByteHrs":    ItemS3StandardIA,
	"TimedStorage-ZIA-ByteHrs":    ItemS3OneZoneIA,
	"TimedStorage-INT-FA-ByteHrs": ItemS3IntelligentTiering,
	"TimedStorage-GIR-ByteHrs":    ItemS3GlacierIR,
	"TimedStorage-GlacierByteHrs": ItemS3Glacier,
	"TimedStorage-GDA-ByteHrs":    ItemS3DeepArchive,
	"TimedStorage-RRS-ByteHrs":    ItemS3ReducedRedundancy,
	"TimedStorage-XZ-ByteHrs":     ItemS3ExpressOneZone,
}

// identify says what the product is and by which unit the price list prices it.
func (p product) identify() (Entry, string, error) {
	a := p.Product.Attributes
	e := Entry{Cloud: AWS, Service: Rates, Region: a["regionCode"], Term: OnDemand}
	if e.Region == "" || (a["locationType"] != "" && a["locationType"] != "AWS Region") {
		return e, "", fmt.Errorf("%q is not a region: %w", cmp.Or(a["location"], e.Region), ErrNotHeld)
	}
	unit := "GB-Mo"
	usage := a["usagetype"]
	switch family := p.Product.ProductFamily; {
	case a["servicecode"] == "AmazonRedshift":
		// Nodes beside those of one zone have usage types of their own.
		if e.Type = a["instanceType"]; e.Type == "" || usage != "Node:"+e.Type && !strings.HasSuffix(usage, "-Node:"+e.Type) {
			return e, "", fmt.Errorf("%q in %s: %w", usage, e.Region, ErrNotHeld)
		}
		e.Service = "redshift"
		return e, "Hrs", nil
	case family == "Cache Instance":
		e.Service, e.Type = cachePrefix+strings.ToLower(a["cacheEngine"]), a["instanceType"]
		if e.Type == "" || usage != "NodeUsage:"+e.Type && !strings.HasSuffix(usage, "-NodeUsage:"+e.Type) {
			return e, "", fmt.Errorf("%q in %s: %w", usage, e.Region, ErrNotHeld)
		}
		return e, "Hrs", nil
	case strings.HasPrefix(family, "Compute Instance"):
		e.Service, e.Type = Compute, a["instanceType"]
		if err := held(a); err != nil {
			return e, "", err
		}
		if a["marketoption"] == "CapacityBlock" {
			e.Term = CapacityBlock
			return e, "", fmt.Errorf("%s is a capacity block, paid up front for a window: %w", e.Type, ErrRefused)
		}
		return e, "Hrs", nil
	case family == "ML Instance":
		e.Service = "sagemaker"
		e.Type = strings.TrimPrefix(cmp.Or(a["instanceName"], a["instanceType"]), "ml.")
		// The same machine is listed once for each component that runs it.
		if family, size, ok := strings.Cut(e.Type, "."); ok {
			size, _, _ = strings.Cut(size, "-")
			e.Type = family + "." + size
		}
		if e.Type == "" {
			return e, "", fmt.Errorf("a machine of SageMaker without its name: %w", ErrNotHeld)
		}
		return e, "Hrs", nil
	case family == "Storage" && a["volumeApiName"] != "":
		e.Item = Item("ebs:" + a["volumeApiName"])
	case family == "System Operation" && a["group"] == "EBS IOPS" && (a["volumeApiName"] == "gp3" || a["volumeApiName"] == "io1"):
		e.Item, unit = Item("ebs:"+a["volumeApiName"]+":iops"), "IOPS-Mo"
	case family == "Storage Snapshot" && strings.HasSuffix(usage, "EBS:SnapshotUsage"):
		e.Item = ItemSnapshot
	case family == "Storage Snapshot" && strings.HasSuffix(usage, "EBS:SnapshotArchiveStorage"):
		e.Item = ItemSnapshotArchive
	case family == "NAT Gateway" && strings.HasSuffix(usage, "NatGateway-Hours"):
		e.Item, unit = ItemNAT, "Hrs"
	case family == "NAT Gateway" && strings.HasSuffix(usage, "NatGateway-Bytes"):
		e.Item, unit = ItemNATData, "GB"
	case a["servicecode"] == "AmazonS3":
		// EU-TimedStorage-ByteHrs; us-east-1 has no prefix.
		if at := strings.Index(usage, "TimedStorage-"); at == 0 || at > 0 && usage[at-1] == '-' {
			e.Item = storageClasses[usage[at:]]
		}
	}
	if e.Item.Unit() == "" {
		return e, "", fmt.Errorf("%q in %s: %w", cmp.Or(usage, p.Product.ProductFamily), e.Region, ErrNotHeld)
	}
	return e, unit, nil
}

// cachePrefix begins the services of caches; their engine follows.
const cachePrefix = "elasticache:"

// held says whether a machine's product is the one that is held: Linux, shared
// tenancy, no license, capacity in use.
func held(a map[string]string) error {
	for _, must := range []struct{ attribute, value string }{
		{"operatingSystem", "Linux"}, {"tenancy", "Shared"}, {"preInstalledSw", "NA"},
		{"capacitystatus", "Used"},
	} {
		if got := a[must.attribute]; got != must.value {
			return fmt.Errorf("%s with %s %q: %w", cmp.Or(a["instanceType"], "a machine"), must.attribute, got, ErrNotHeld)
		}
	}
	if a["instanceType"] == "" {
		return fmt.Errorf("no instanceType: %w", ErrNotHeld)
	}
	return nil
}

// price reads the rates of the only on-demand term, tiers in rising order.
func (p product) price(e *Entry, unit string) error {
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
			if d.Unit != unit && !(unit == "Hrs" && strings.EqualFold(d.Unit, "hours")) {
				return fmt.Errorf("it is priced by %q, not by %q: %w", d.Unit, unit, ErrRefused)
			}
			usd, ok := d.PricePerUnit["USD"]
			if !ok {
				return fmt.Errorf("it has no price in USD: %w", ErrNotHeld)
			}
			r, err := parseUSD(usd)
			if err != nil {
				return fmt.Errorf("price %q: %w", usd, err)
			}
			if r == 0 && len(term.PriceDimensions) > 1 && strings.HasPrefix(e.Service, cachePrefix) {
				continue // the hours that a reservation pays
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
		if len(tiers) == 0 || tiers[0].Above != 0 {
			return fmt.Errorf("it has no price from zero: %w", ErrRefused)
		}
		e.Price.Rate = tiers[0].Rate
		if len(tiers) > 1 {
			e.Price.Tiers = tiers[1:]
		}
	}
	return e.whole()
}

// beginning reads where a tier begins, whole units.
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

// SpotEntry is a spot price of AWS in one zone, as the EC2 spot price history gives
// it: dollars an hour, Linux/UNIX. [Book.Update] makes the zones' median the
// region's price.
func SpotEntry(machineType, region, zone, usd string, at time.Time) (Entry, error) {
	r, err := parseUSD(usd)
	if err != nil {
		return Entry{}, fmt.Errorf("spot price %q of %s in %s: %w", usd, machineType, zone, err)
	}
	return Entry{Cloud: AWS, Service: Compute, Type: machineType, Region: region, Zone: zone, Term: Spot,
		Price: Price{Unit: "hour", Rate: r, Source: "EC2 spot price history", AsOf: day(at)}}, nil
}
