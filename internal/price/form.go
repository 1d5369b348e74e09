package price

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/money"
)

// The headers of the book's own files. Other headers are refused, so that a mistyped column is not
// silently empty.
var (
	entryColumns = []string{"cloud", "service", "name", "region", "term", "above", "usd", "unit",
		"accelerator", "accelerators", "source", "as_of"}
	machineColumns = []string{"type", "cloud", "family", "vcpus", "memory_mib", "accelerator", "accelerators",
		"accelerator_memory_mib", "network_mbps", "instance_storage_gb", "arch", "release_year", "source", "as_of"}
	acceleratorColumns = []string{"name", "vendor", "generation", "memory_mib", "memory_bandwidth_gbps", "bf16_tflops",
		"precision", "fp8_tflops", "tdp_watts", "mig", "release_year", "source", "as_of"}
)

// maxField bounds a field of any file: names and sources are short.
const maxField = 400

// table reads a CSV file row by row, with fields by column name and errors with the line.
type table struct {
	r       *csv.Reader
	columns map[string]int
	header  []string
	row     []string
	line    int
}

// newTable reads the header, after an optional byte order mark.
func newTable(r io.Reader) (*table, error) {
	t := &table{r: csv.NewReader(r), columns: map[string]int{}}
	t.r.ReuseRecord = true
	header, err := t.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: it needs a header line")
	}
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	t.header = slices.Clone(header)
	t.header[0] = strings.TrimPrefix(t.header[0], "\ufeff")
	for i, name := range t.header {
		t.header[i] = strings.TrimSpace(name)
		if _, twice := t.columns[t.header[i]]; twice {
			return nil, fmt.Errorf("line 1: column %q is there twice", t.header[i])
		}
		t.columns[t.header[i]] = i
	}
	return t, nil
}

// strict returns an error unless the header is exactly want.
func (t *table) strict(want []string) error {
	if !slices.Equal(t.header, want) {
		return fmt.Errorf("line 1: the header is %q, not %q", strings.Join(t.header, ","), strings.Join(want, ","))
	}
	return nil
}

// next reads a row; io.EOF ends the table. Errors include the line.
func (t *table) next() error {
	row, err := t.r.Read()
	if err != nil {
		return err
	}
	t.row = row
	t.line, _ = t.r.FieldPos(0)
	for i, f := range row {
		if len(f) > maxField {
			return t.errorf("%s is longer than %d bytes", t.header[i], maxField)
		}
		if strings.ContainsFunc(f, unicode.IsControl) {
			return t.errorf("%s holds a control character", t.header[i])
		}
	}
	return nil
}

// has reports whether the header has all these columns.
func (t *table) has(columns ...string) bool {
	for _, c := range columns {
		if _, ok := t.columns[c]; !ok {
			return false
		}
	}
	return true
}

// text returns a field without surrounding spaces; empty if the column is absent.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(t.row[i])
}

func (t *table) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{t.line}, args...)...)
}

// count reads a non-negative integer; empty is 0.
func (t *table) count(column string) (int64, error) {
	s := t.text(column)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, t.errorf("%s %q is not a whole number", column, s)
	}
	return n, nil
}

// figure reads a non-negative number; empty is 0.
func (t *table) figure(column string) (float64, error) {
	s := t.text(column)
	if s == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, t.errorf("%s %q is not a number", column, s)
	}
	return f, nil
}

// thousandths reads a decimal with up to three fractional digits; empty is 0.
func (t *table) thousandths(column string) (int64, error) {
	s := t.text(column)
	if s == "" {
		return 0, nil
	}
	n, err := parseThousandths(s)
	if err != nil {
		return 0, t.errorf("%s: %w", column, err)
	}
	return n, nil
}

func parseThousandths(s string) (int64, error) {
	r, err := money.ParseRate(s)
	const unit = money.USDPerUnit / perDevice
	if err != nil || r < 0 || r%unit != 0 {
		return 0, fmt.Errorf("%q is not a number with up to three digits after the point", s)
	}
	return int64(r / unit), nil
}

// rate reads dollars per unit.
func (t *table) rate(column string) (money.Rate, error) {
	r, err := parseUSD(t.text(column))
	if err != nil {
		return 0, t.errorf("%s: %w", column, err)
	}
	return r, nil
}

// parseUSD reads dollars per unit. Digits below a pico-dollar, which catalogs print from binary
// floats, are rounded half up.
func parseUSD(s string) (money.Rate, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	const digits = 12
	if len(fraction) <= digits || strings.Trim(fraction, "0123456789") != "" {
		return money.ParseRate(s)
	}
	r, err := money.ParseRate(whole + "." + fraction[:digits])
	if err != nil || fraction[digits] < '5' || r == math.MaxInt64 {
		return r, err
	}
	if strings.HasPrefix(whole, "-") {
		return r - 1, nil
	}
	return r + 1, nil
}

// asOf reads the column as_of as a date, or a time truncated to its date.
func (t *table) asOf() (time.Time, error) {
	d, err := parseDate(t.text("as_of"))
	if err != nil {
		return time.Time{}, t.errorf("as_of: %w", err)
	}
	return d, nil
}

func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if d, err := time.Parse(layout, s); err == nil && dated(d) {
			return day(d), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a date (2026-07-06)", s)
}

// dated reports whether a price can have this date: clouds began in 2006.
func dated(d time.Time) bool { return d.UTC().Year() >= 2000 && d.UTC().Year() < 2200 }

// readEntries reads prices in the book's own format into held. The tiers of a price are adjacent
// and ascending in above. An incomplete, repeated, zero or negative row is an error with its line.
func readEntries(r io.Reader, held map[key]Entry) error {
	var last key
	seen := map[key]bool{}
	return rows(r, entryColumns, func(t *table) error {
		e, above, err := t.entry()
		if err != nil {
			return err
		}
		k := e.key()
		switch {
		case above == 0 && seen[k]:
			return t.errorf("%s is priced twice", e)
		case above > 0 && k != last:
			return t.errorf("a tier of %s does not follow its first rate", e)
		case above > 0:
			first := held[k]
			if first.Price.Source != e.Price.Source || !first.Price.AsOf.Equal(e.Price.AsOf) {
				return t.errorf("a tier of %s has another source or date than its first rate", e)
			}
			// Clip first: the slice may be shared with a book in use.
			first.Price.Tiers = append(slices.Clip(first.Price.Tiers), Tier{Above: above, Rate: e.Price.Rate})
			e = first
		}
		if err := e.checkComplete(); err != nil {
			return t.errorf("%w", err)
		}
		seen[k], last = true, k
		held[k] = e
		return nil
	})
}

// entry reads a row of the book's own form.
func (t *table) entry() (e Entry, above int64, err error) {
	e = Entry{
		Cloud: t.text("cloud"), Service: t.text("service"), Region: t.text("region"), Term: Term(t.text("term")),
		Accelerator: t.text("accelerator"),
		Price:       Price{Unit: t.text("unit"), Source: t.text("source")},
	}
	if e.Service == Rates {
		e.Item = Item(t.text("name"))
	} else {
		e.Type = t.text("name")
	}
	if e.AcceleratorMilli, err = t.thousandths("accelerators"); err != nil {
		return e, 0, err
	}
	if above, err = t.count("above"); err != nil {
		return e, 0, err
	}
	if e.Price.Rate, err = t.rate("usd"); err != nil {
		return e, 0, err
	}
	if e.Price.Rate <= 0 {
		return e, 0, t.errorf("a price of %s is not a price", e.Price.Rate)
	}
	e.Price.AsOf, err = t.asOf()
	return e, above, err
}

// writeEntries writes prices in the book's own form.
func writeEntries(w io.Writer, entries []Entry) error {
	out := csv.NewWriter(w)
	if err := out.Write(entryColumns); err != nil {
		return err
	}
	for _, e := range entries {
		name, accelerators := e.Type, ""
		if e.Service == Rates {
			name = string(e.Item)
		}
		if e.AcceleratorMilli > 0 {
			accelerators = (money.Rate(e.AcceleratorMilli) * (money.USDPerUnit / perDevice)).String()
		}
		for i, r := range e.Price.rates() {
			above := ""
			if i > 0 {
				above = strconv.FormatInt(e.Price.Tiers[i-1].Above, 10)
			}
			err := out.Write([]string{
				e.Cloud, e.Service, name, e.Region, string(e.Term), above, r.String(), e.Price.Unit,
				e.Accelerator, accelerators, e.Price.Source, e.Price.AsOf.Format(time.DateOnly)})
			if err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// readMachines reads machine facts.
func readMachines(r io.Reader, add func(Machine) error) error {
	return rows(r, machineColumns, func(t *table) error {
		m := Machine{
			Type: t.text("type"), Cloud: t.text("cloud"), Family: t.text("family"), Accelerator: t.text("accelerator"),
			Arch: t.text("arch"), Source: t.text("source")}
		var vcpus, year int64
		var err error
		for _, f := range []struct {
			column string
			to     *int64
		}{{"vcpus", &vcpus}, {"memory_mib", &m.MemoryMiB}, {"accelerator_memory_mib", &m.AcceleratorMemoryMiB},
			{"network_mbps", &m.NetworkMbps}, {"instance_storage_gb", &m.InstanceStorageGB}, {"release_year", &year}} {
			if *f.to, err = t.count(f.column); err != nil {
				return err
			}
		}
		m.VCPUs, m.ReleaseYear = int(vcpus), int(year)
		if m.AcceleratorMilli, err = t.thousandths("accelerators"); err != nil {
			return err
		}
		if m.AsOf, err = t.asOf(); err != nil {
			return err
		}
		if m.Type == "" || m.VCPUs == 0 || m.MemoryMiB == 0 || m.Source == "" ||
			(m.Accelerator == "") != (m.AcceleratorMilli == 0) {
			return t.errorf("%q is not a whole machine", m.Type)
		}
		return add(m)
	})
}

// readAccelerators reads device facts.
func readAccelerators(r io.Reader, add func(Accelerator) error) error {
	return rows(r, acceleratorColumns, func(t *table) error {
		a := Accelerator{Name: t.text("name"), Vendor: t.text("vendor"), Generation: t.text("generation"),
			Precision: t.text("precision"), MIG: t.text("mig") == "yes", Source: t.text("source")}
		var watts, year int64
		var err error
		for _, f := range []struct {
			column string
			to     *int64
		}{{"memory_mib", &a.MemoryMiB}, {"tdp_watts", &watts}, {"release_year", &year}} {
			if *f.to, err = t.count(f.column); err != nil {
				return err
			}
		}
		a.TDPWatts, a.ReleaseYear = int(watts), int(year)
		for _, f := range []struct {
			column string
			to     *float64
		}{
			{"memory_bandwidth_gbps", &a.MemoryBandwidthGBps}, {"bf16_tflops", &a.BF16TFLOPS},
			{"fp8_tflops", &a.FP8TFLOPS},
		} {
			if *f.to, err = t.figure(f.column); err != nil {
				return err
			}
		}
		if a.AsOf, err = t.asOf(); err != nil {
			return err
		}
		if a.Name == "" || a.MemoryMiB == 0 || a.Source == "" {
			return t.errorf("%q is not a whole accelerator", a.Name)
		}
		return add(a)
	})
}

// rows reads all rows of a file with exactly these columns.
func rows(r io.Reader, columns []string, row func(*table) error) error {
	t, err := newTable(r)
	if err != nil {
		return err
	}
	if err := t.strict(columns); err != nil {
		return err
	}
	for {
		if err := t.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := row(t); err != nil {
			return err
		}
	}
}
