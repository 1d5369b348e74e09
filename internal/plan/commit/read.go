package commit

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan"
)

// maxTerm is the longest term in months, ten years.
const maxTerm = 120

// instants are the forms of a time in files; without a zone it is UTC.
var instants = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04",
}

// UsageFile is a file of machines by the hour.
var UsageFile = plan.Layout{
	Required: []plan.Column{
		{Name: "time", Doc: "full hour: RFC 3339, or seconds since 1970"},
		{Name: "key", Doc: "what an offer has to match, such as the machine type"},
		{Name: "quantity", Doc: "machines that ran in the hour, to the millionth"},
		{Name: "on_demand_rate", Doc: "on-demand price of one machine for the hour, in dollars, over 0"},
	},
	Optional: []plan.Column{
		{Name: "idle_quantity", Doc: "machines of quantity that were idle; the planner takes them off first"},
		{
			Name: "leaving_quantity",
			Doc: "other machines of quantity that are to stop, to move to spot or to be replaced; " +
				"they come off too"},
	},
}

// ReadUsage reads CSV with the columns time, key, quantity and on_demand_rate, and if it
// likes idle_quantity and leaving_quantity. A time is RFC 3339 or seconds since 1970, and a full hour; a
// quantity is read to the millionth of a machine; a rate is over 0. An hour of a key
// that is there twice is an error. Errors are a *plan.FileError with the place.
func ReadUsage(name string, r io.Reader) ([]Usage, error) {
	type hour struct {
		at  int64
		key string
	}
	var out []Usage
	lines := map[hour]int{}
	keys := map[string]string{}
	err := plan.ReadCSV(name, r, UsageFile, func(row plan.Row) error {
		u, err := usageOf(row)
		if err != nil {
			return err
		}
		at := hour{u.Hour.Unix(), u.Key}
		if first := lines[at]; first > 0 {
			return row.Error("time", "%s of %.60q appears twice, first in line %d",
				u.Hour.Format(time.RFC3339), u.Key, first)
		}
		if _, ok := keys[u.Key]; !ok {
			keys[u.Key] = strings.Clone(u.Key) // a field keeps its whole row in memory
		}
		u.Key = keys[u.Key]
		lines[hour{at.at, u.Key}] = row.Line()
		out = append(out, u)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &plan.FileError{File: name, Reason: "no hour of usage"}
	}
	return out, nil
}

func usageOf(row plan.Row) (Usage, error) {
	var u Usage
	var err error
	if u.Hour, err = instant(row, "time"); err != nil {
		return u, err
	}
	if !u.Hour.Equal(u.Hour.Truncate(time.Hour)) {
		return u, row.Error("time", "time %q is not a full hour in UTC", row.Text("time"))
	}
	if u.Key, err = row.Name("key"); err != nil {
		return u, err
	}
	if u.Quantity, err = quantity(row, "quantity"); err != nil {
		return u, err
	}
	if row.Text("idle_quantity") != "" {
		if u.Idle, err = quantity(row, "idle_quantity"); err != nil {
			return u, err
		}
		if u.Idle > u.Quantity {
			return u, row.Error("idle_quantity", "idle_quantity %s is more than quantity %s",
				row.Text("idle_quantity"),
				row.Text("quantity"))
		}
	}
	if row.Text("leaving_quantity") != "" {
		if u.Leaving, err = quantity(row, "leaving_quantity"); err != nil {
			return u, err
		}
		if u.Leaving > u.Quantity-u.Idle {
			return u, row.Error("leaving_quantity",
				"leaving_quantity %s is more than the rest of quantity %s that is not idle",
				row.Text("leaving_quantity"), row.Text("quantity"))
		}
	}
	if u.OnDemand, err = row.Amount("on_demand_rate"); err != nil {
		return u, err
	}
	if u.OnDemand == 0 {
		return u, row.Error("on_demand_rate", "on_demand_rate is 0: expected a price over 0")
	}
	return u, nil
}

// OffersFile is a file of commitments on offer.
var OffersFile = plan.Layout{
	Required: []plan.Column{
		{Name: "key", Doc: "what it covers: a key of the usage, or a pattern for a savings plan"},
		{Name: "kind", Doc: "reserved or savings-plan"},
		{Name: "term_months", Doc: "term in months"},
		{Name: "payment", Doc: "no-upfront, partial-upfront or all-upfront"},
		{Name: "hourly_rate", Doc: "dollars an hour of a reserved machine; empty for a savings plan"},
		{Name: "upfront", Doc: "dollars paid upfront for a reserved machine"},
		{Name: "discount", Doc: "share off the on-demand price, of a savings plan"},
	},
	Optional: []plan.Column{sizesColumn},
}

// sizesColumn has the sizes that reserved machines cover.
var sizesColumn = plan.Column{Name: "sizes", Doc: "family or one, of reserved machines: one where they are zonal, " +
	"dedicated or not for Linux/UNIX; empty is family where AWS covers each size of it"}

// ReadOffers reads CSV with the columns key, kind, term_months, payment, hourly_rate,
// upfront and discount, and if it likes sizes. Errors are a *plan.FileError with the place: among them a
// payment that contradicts what is paid upfront, and a savings plan with a rate of its
// own.
func ReadOffers(name string, r io.Reader) ([]Offer, error) {
	var out []Offer
	err := plan.ReadCSV(name, r, OffersFile, func(row plan.Row) error {
		o, err := offerOf(row)
		if err != nil {
			return err
		}
		if o.TermMonths, err = row.Int("term_months", 1, maxTerm); err != nil {
			return err
		}
		if o.Payment, err = payment(row); err != nil {
			return err
		}
		if o.Kind == Reserved {
			if err := agrees(row, o); err != nil {
				return err
			}
		}
		out = append(out, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &plan.FileError{File: name, Reason: "no offer"}
	}
	return out, nil
}

// ExistingFile is a file of commitments that exist.
var ExistingFile = plan.Layout{
	Required: []plan.Column{
		{Name: "key", Doc: "what it covers"},
		{Name: "kind", Doc: "reserved or savings-plan"},
		{Name: "expires", Doc: "time at which it ends"},
	},
	Optional: []plan.Column{
		{Name: "term_months", Doc: "term in months; needed where something was paid upfront"},
		{Name: "payment", Doc: "no-upfront, partial-upfront or all-upfront"},
		{Name: "hourly_rate", Doc: "dollars an hour of a reserved machine"},
		{Name: "upfront", Doc: "dollars that were paid upfront"},
		{Name: "discount", Doc: "share off the on-demand price, of a savings plan"},
		{Name: "quantity", Doc: "reserved machines"},
		{Name: "dollars_per_hour", Doc: "dollars an hour that a savings plan commits to"},
		sizesColumn,
	},
}

// ReadExisting reads CSV with the columns key, kind and expires; for reserved machines
// quantity and hourly_rate, for savings plans dollars_per_hour and discount; if it likes
// term_months, payment, upfront and sizes. What was paid upfront needs the term that it is
// spread over. Errors are a *plan.FileError with the place.
func ReadExisting(name string, r io.Reader) ([]Existing, error) {
	var out []Existing
	err := plan.ReadCSV(name, r, ExistingFile, func(row plan.Row) error {
		e, err := existingOf(row)
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func existingOf(row plan.Row) (Existing, error) {
	var e Existing
	var err error
	if e.Offer, err = offerOf(row); err != nil {
		return e, err
	}
	if row.Text("term_months") != "" {
		if e.TermMonths, err = row.Int("term_months", 1, maxTerm); err != nil {
			return e, err
		}
	} else if e.Upfront > 0 {
		return e, row.Error("upfront", "upfront needs term_months, over which it is spread")
	}
	if row.Text("payment") != "" {
		if e.Payment, err = payment(row); err != nil {
			return e, err
		}
		if e.Kind == Reserved {
			if err := agrees(row, e.Offer); err != nil {
				return e, err
			}
		}
	}
	if e.Kind == Reserved {
		if row.Text("dollars_per_hour") != "" {
			return e, row.Error("dollars_per_hour", "reserved machines take quantity, not dollars_per_hour")
		}
		e.Machines, err = row.Int("quantity", 1, maxMachines)
	} else {
		if row.Text("quantity") != "" {
			return e, row.Error("quantity", "a savings plan takes dollars_per_hour, not quantity")
		}
		if e.DollarsPerHour, err = row.Amount("dollars_per_hour"); err == nil && e.DollarsPerHour == 0 {
			err = row.Error("dollars_per_hour", "dollars_per_hour is 0: expected more than 0")
		}
	}
	if err != nil {
		return e, err
	}
	e.Expires, err = instant(row, "expires")
	return e, err
}

// offerOf reads what offers and commitments have in common.
func offerOf(row plan.Row) (Offer, error) {
	var o Offer
	key, err := row.Name("key")
	if err != nil {
		return o, err
	}
	o.Key, o.Kind = key, Kind(row.Text("kind"))
	switch sizes := row.Text("sizes"); {
	case sizes != "" && sizes != "family" && sizes != "one":
		return o, row.Error("sizes", "sizes %.40q: expected family or one", sizes)
	case sizes != "" && o.Kind == SavingsPlan:
		return o, row.Error("sizes", "a savings plan covers every size: leave sizes empty")
	case sizes == "family" && !flexibleKey(o.Key):
		return o, row.Error("sizes", "sizes is family, but a reservation of %.60q covers its own size only", o.Key)
	default:
		o.OneSize = sizes == "one"
	}
	switch o.Kind {
	case Reserved:
		if strings.Contains(o.Key, "*") {
			return o, row.Error("key", "key %.60q has a *: reserved machines need exactly one key", o.Key)
		}
		if o.Hourly, err = row.Amount("hourly_rate"); err != nil {
			return o, err
		}
		if row.Text("upfront") != "" {
			o.Upfront, err = row.Amount("upfront")
		}
		return o, err
	case SavingsPlan:
		for _, column := range []string{"hourly_rate", "upfront"} {
			if row.Text(column) == "" {
				continue
			}
			if v, err := row.Amount(column); err != nil {
				return o, err
			} else if v != 0 {
				return o, row.Error(column,
					"%s of a savings plan is %s: leave it empty; a savings plan has a discount, and the "+
						"planner finds the dollars per hour", column, row.Text(column))
			}
		}
		d, err := row.Float("discount", 0, 1)
		if err != nil {
			return o, err
		}
		if o.Discount = Discount(math.RoundToEven(d * float64(fullDiscount))); o.Discount == 0 ||
			o.Discount == fullDiscount {
			return o, row.Error("discount", "discount is %s: expected over 0 and under 1", row.Text("discount"))
		}
		return o, nil
	}
	return o, row.Error("kind", "kind %.40q: expected %s or %s", o.Kind, Reserved, SavingsPlan)
}

// payment reads the providers' own spellings too: "No Upfront".
func payment(row plan.Row) (Payment, error) {
	p := Payment(strings.NewReplacer(" ", "-", "_", "-").Replace(strings.ToLower(row.Text("payment"))))
	if all := []Payment{NoUpfront, PartialUpfront, AllUpfront}; !slices.Contains(all, p) {
		return "", row.Error("payment", "payment %.40q: expected %s, %s or %s", row.Text("payment"), NoUpfront,
			PartialUpfront, AllUpfront)
	}
	return p, nil
}

// agrees holds a payment against what is paid.
func agrees(row plan.Row, o Offer) error {
	switch {
	case o.Payment == NoUpfront && o.Upfront > 0:
		return row.Error("upfront", "upfront is %s, but payment is %s", row.Text("upfront"), o.Payment)
	case o.Payment == AllUpfront && o.Hourly > 0:
		return row.Error("hourly_rate", "hourly_rate is %s, but payment is %s", row.Text("hourly_rate"), o.Payment)
	case o.Hourly == 0 && o.Upfront == 0:
		return row.Error("hourly_rate", "hourly_rate and upfront are both 0: expected a price")
	}
	return nil
}

func quantity(row plan.Row, column string) (Quantity, error) {
	v, err := row.Float(column, 0, maxMachines)
	return Quantity(math.RoundToEven(v * float64(Machine))), err
}

func instant(row plan.Row, column string) (time.Time, error) {
	text := row.Text(column)
	if s, err := strconv.ParseInt(text, 10, 64); err == nil && s >= 0 && s < 1<<36 {
		return time.Unix(s, 0).UTC(), nil
	}
	for _, form := range instants {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, row.Error(column, "%s %.40q is not RFC 3339, such as 2026-03-01T14:00:00Z", column, text)
}

// charge returns the cost of one reserved machine over a number of hours.
func (o Offer) charge(hours int64) (money.Amount, error) {
	running, err := o.Hourly.Mul(hours, 1)
	if err != nil {
		return 0, fmt.Errorf("charge %s: %w", o.Key, err)
	}
	if o.Upfront == 0 {
		return running, nil
	}
	spread, err := o.Upfront.Mul(hours, o.TermMonths*money.HoursPerMonth)
	if err != nil {
		return 0, fmt.Errorf("spread the upfront of %s: %w", o.Key, err)
	}
	return running.Add(spread)
}
