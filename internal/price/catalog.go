package price

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Origin supplies values that a catalog's rows lack.
type Origin struct {
	// Source is cited by every price.
	Source string
	// AsOf is the date of rows without one.
	AsOf time.Time
	// Cloud is the provider of a catalog that does not name one, such as a file of one cloud's
	// default rates.
	Cloud string
}

// ReadCatalog reads prices from a catalog, row by row, and recognizes its kind by the header:
//
//   - instance_type, region, on_demand_usd_per_hour, spot_usd_per_hour…: a cloud's
//     machines by region, with accelerators (SkyPilot's catalogs reduced);
//   - provider, region, instance_type, term, usd_per_hour: with a date as as_of;
//   - provider, region_or_zone, instance_type, gpu, gpu_count, term, usd_per_hour,
//     part: several clouds, whole machines or halves of prices;
//   - tpu, region, on_demand_usd_per_chip_hour, spot_usd_per_chip_hour;
//   - instance_type, region, usd_per_hour: reserved prices without their term;
//   - the book's own form, as Book.Save writes it;
//   - a JSON object of default rates by OpenCost's names (CPU, RAM, GPU, storage,
//     …NetworkEgress).
//
// Prices are not checked here: zero, duplicate and implausible prices are yielded, for
// [Book.Update] to refuse by name. An invalid row ends the sequence with an error that has its
// line; a row without a price is skipped.
func ReadCatalog(r io.Reader, o Origin) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		stopped := false
		err := readCatalog(r, o, func(e Entry) bool {
			stopped = !yield(e, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Entry{}, fmt.Errorf("read catalog: %w", err))
		}
	}
}

// errStopped ends a reader whose consumer stopped early.
var errStopped = errors.New("stopped")

// catalog is one format of file.
type catalog struct {
	columns []string
	row     func(t *table, o Origin, emit func(Entry) error) error
}

// catalogs are the formats in the order of detection: those with more distinctive columns first.
var catalogs = []catalog{
	{[]string{"tpu", "region", "on_demand_usd_per_chip_hour", "spot_usd_per_chip_hour"}, (*table).chip},
	{
		[]string{"provider", "region_or_zone", "instance_type", "gpu", "gpu_count", "term", "usd_per_hour", "part"},
		(*table).excerpt,
	},
	{[]string{"provider", "region", "instance_type", "term", "usd_per_hour"}, (*table).dated},
	{[]string{"instance_type", "region", "on_demand_usd_per_hour"}, (*table).regional},
	{[]string{"instance_type", "region", "usd_per_hour"}, (*table).reserved},
	{entryColumns, (*table).own},
}

func readCatalog(r io.Reader, o Origin, yield func(Entry) bool) error {
	in := bufio.NewReader(r)
	start, _ := in.Peek(64)
	if s := bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\ufeff")), " \t\r\n"); len(s) > 0 && s[0] == '{' {
		return readDefaults(in, o, yield)
	}
	t, err := newTable(in)
	if err != nil {
		return err
	}
	for _, kind := range catalogs {
		if !t.has(kind.columns...) {
			continue
		}
		emit := func(e Entry) error {
			e.Line = t.line
			e.Price.Source = cmp.Or(e.Price.Source, o.Source)
			if e.Price.AsOf.IsZero() {
				e.Price.AsOf = day(o.AsOf)
			}
			if !yield(e) {
				return errStopped
			}
			return nil
		}
		for {
			err := t.next()
			if err == nil {
				err = kind.row(t, o, emit)
			}
			if errors.Is(err, io.EOF) || errors.Is(err, errStopped) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("line 1: columns %q are of no catalog known", strings.Join(t.header, ","))
}

// machine makes the entry of a machine's hourly price.
func machine(cloud, name, region string, term Term, r money.Rate) Entry {
	return Entry{
		Cloud: cloud, Service: Compute, Type: name, Region: region, Term: term, Price: Price{Unit: "hour", Rate: r},
	}
}

// need returns an error if a field is empty.
func (t *table) need(columns ...string) error {
	for _, c := range columns {
		if t.text(c) == "" {
			return t.errorf("%s is empty", c)
		}
	}
	return nil
}

// each yields an entry for every price column that is not empty.
func (t *table) each(columns map[Term]string, e Entry, emit func(Entry) error) error {
	for _, term := range []Term{OnDemand, Spot} {
		c := columns[term]
		if t.text(c) == "" {
			continue
		}
		r, err := t.rate(c)
		if err != nil {
			return err
		}
		e.Term, e.Price.Rate = term, r
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) regional(o Origin, emit func(Entry) error) error {
	if err := t.need("instance_type", "region"); err != nil {
		return err
	}
	e := machine(cmp.Or(o.Cloud, AWS), t.text("instance_type"), t.text("region"), OnDemand, 0)
	var err error
	if e.AcceleratorMilli, err = t.thousandths("accelerator_count"); err != nil {
		return err
	}
	if e.Accelerator = t.text("accelerator"); e.Accelerator == "" {
		e.AcceleratorMilli = 0
	}
	if commit := t.text("source_commit"); commit != "" && o.Source != "" {
		e.Price.Source = o.Source + " @" + commit[:min(8, len(commit))]
	}
	spot := "spot_usd_per_hour_median_over_zones"
	if !t.has(spot) {
		spot = "spot_usd_per_hour"
	}
	return t.each(map[Term]string{OnDemand: "on_demand_usd_per_hour", Spot: spot}, e, emit)
}

func (t *table) dated(_ Origin, emit func(Entry) error) error {
	if err := t.need("provider", "region", "instance_type", "term", "usd_per_hour"); err != nil {
		return err
	}
	r, err := t.rate("usd_per_hour")
	if err != nil {
		return err
	}
	term, err := t.term()
	if err != nil {
		return err
	}
	e := machine(t.text("provider"), t.text("instance_type"), t.text("region"), term, r)
	if t.text("as_of") != "" {
		if e.Price.AsOf, err = t.asOf(); err != nil {
			return err
		}
	}
	return emit(e)
}

func (t *table) reserved(o Origin, emit func(Entry) error) error {
	if err := t.need("instance_type", "region", "usd_per_hour"); err != nil {
		return err
	}
	r, err := t.rate("usd_per_hour")
	if err != nil {
		return err
	}
	return emit(machine(cmp.Or(o.Cloud, AWS), t.text("instance_type"), t.text("region"), Reserved, r))
}

func (t *table) chip(o Origin, emit func(Entry) error) error {
	if err := t.need("tpu", "region"); err != nil {
		return err
	}
	e := machine(cmp.Or(o.Cloud, "gcp"), t.text("tpu"), t.text("region"), OnDemand, 0)
	e.Accelerator, e.AcceleratorMilli = e.Type, perDevice
	return t.each(map[Term]string{OnDemand: "on_demand_usd_per_chip_hour", Spot: "spot_usd_per_chip_hour"}, e, emit)
}

func (t *table) excerpt(_ Origin, emit func(Entry) error) error {
	if err := t.need("provider", "region_or_zone", "gpu", "gpu_count", "term", "usd_per_hour", "part"); err != nil {
		return err
	}
	r, err := t.rate("usd_per_hour")
	if err != nil {
		return err
	}
	term, err := t.term()
	if err != nil {
		return err
	}
	e := machine(t.text("provider"), t.text("instance_type"), t.text("region_or_zone"), term, r)
	if e.Cloud == "gcp" {
		// GCP rows are per zone: us-central1-a.
		if i := strings.LastIndexByte(e.Region, '-'); i > 0 && len(e.Region)-i == 2 &&
			strings.Contains(e.Region[:i], "-") {
			e.Region, e.Zone = e.Region[:i], e.Region
		}
	}
	e.Accelerator = t.text("gpu")
	if e.AcceleratorMilli, err = t.thousandths("gpu_count"); err != nil {
		return err
	}
	switch part := t.text("part"); part {
	case "whole VM":
	case string(GPUAlone), string(WithoutGPU):
		e.Part = Part(part)
	default:
		return t.errorf("part %q is not \"whole VM\", %q or %q", part, GPUAlone, WithoutGPU)
	}
	if e.Part != GPUAlone && e.Type == "" {
		return t.errorf("instance_type is empty")
	}
	if file, commit := t.text("source_file"), t.text("source_commit"); file != "" {
		e.Price.Source = file
		if commit != "" {
			e.Price.Source += " @" + commit[:min(8, len(commit))]
		}
	}
	return emit(e)
}

func (t *table) own(_ Origin, emit func(Entry) error) error {
	e, above, err := t.entry()
	if err != nil {
		return err
	}
	if above > 0 {
		return t.errorf("tiers are read by Load, not as a catalog")
	}
	return emit(e)
}

// term reads the purchase term of a price.
func (t *table) term() (Term, error) {
	switch term := Term(strings.ToLower(t.text("term"))); term {
	case OnDemand, Spot, Reserved, CapacityBlock:
		return term, nil
	default:
		return "", t.errorf("term %q is not on-demand, spot, reserved or capacity-block", term)
	}
}

// defaultRates maps OpenCost's names of default rates to items.
var defaultRates = []struct {
	name string
	item Item
	term Term
}{
	{"CPU", ItemDefaultVCPU, OnDemand}, {"spotCPU", ItemDefaultVCPU, Spot},
	{"RAM", ItemDefaultMemory, OnDemand}, {"spotRAM", ItemDefaultMemory, Spot},
	{"GPU", ItemDefaultGPU, OnDemand}, {"spotGPU", ItemDefaultGPU, Spot},
	{"storage", ItemDefaultStorage, OnDemand}, {"defaultLBPrice", ItemDefaultLB, OnDemand},
	{"zoneNetworkEgress", ItemDefaultEgressZone, OnDemand}, {"regionNetworkEgress", ItemDefaultEgressRegion, OnDemand},
	{"internetNetworkEgress", ItemDefaultEgressInternet, OnDemand},
}

// maxDocument bounds a JSON document in bytes; price lists consist of many small ones.
const maxDocument = 4 << 20

// readDefaults reads a cloud's default rates.
func readDefaults(r io.Reader, o Origin, yield func(Entry) bool) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return err
	}
	if len(raw) > maxDocument {
		return fmt.Errorf("the document is over %d MiB", maxDocument>>20)
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\ufeff"))))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return jsonError(raw, err)
	}
	if d.More() {
		return errors.New("there is more than one JSON object")
	}
	if o.Cloud == "" {
		return errors.New("default rates do not say whose they are: the cloud must be given")
	}
	found := false
	for _, known := range defaultRates {
		value, ok := fields[known.name]
		if !ok {
			continue
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		if text == "" {
			continue
		}
		rate, err := parseUSD(text)
		if err != nil {
			return fmt.Errorf("%s %q: %w", known.name, text, err)
		}
		found = true
		if !yield(Entry{Cloud: o.Cloud, Service: Rates, Item: known.item, Term: known.term,
			Price: Price{Unit: known.item.Unit(), Rate: rate, Source: o.Source, AsOf: day(o.AsOf)}}) {
			return nil
		}
	}
	if !found {
		return errors.New("the JSON object has none of the default rates: CPU, RAM, GPU, storage, …NetworkEgress")
	}
	return nil
}

// jsonError adds the line to a syntax error.
func jsonError(raw []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset >= 0 && syntax.Offset <= int64(len(raw)) {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(raw[:syntax.Offset], []byte("\n")), err)
	}
	return err
}
