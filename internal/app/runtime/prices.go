package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/price"
)

// PriceFile is the file with the user's own prices, which override the embedded book.
const PriceFile = "prices.csv"

// PriceBook returns the embedded book with the updates of the shared settings, or else of the user.
// Implausible prices are not used, with a warning.
func (req *Request) PriceBook(c config.Config) (*price.Book, error) {
	name := filepath.Join(c.DataDir, PriceFile)
	if req.prices.set {
		book, refused, err := req.Quarantined(req.prices.text, "the prices of the shared settings")
		return req.told(book, refused, "the prices of the shared settings", err)
	}
	if c.DataDir == "" {
		return price.Embedded()
	}
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return price.Embedded()
	}
	if err != nil {
		return nil, fmt.Errorf("read the updated prices: %w", err)
	}
	book, refused, err := req.Quarantined(string(text), name)
	return req.told(book, refused, name, err)
}

// CheckRegion warns of a region without prices in the book, which is probably misspelled. Empty is
// all regions.
func (req *Request) CheckRegion(book *price.Book, region string) {
	if near := document.DidYouMean(region, book.Regions()); region != "" && near != "" {
		plain.Fprintf(req.Log, "curfew: warning: the price book has no price in %s%s\n", region, plain.Text(near))
	}
}

// Quarantined returns the book with the plausible prices of a text.
func (req *Request) Quarantined(text, name string) (*price.Book, []price.Refusal, error) {
	book, err := price.Embedded()
	if err != nil || text == "" {
		return book, nil, err
	}
	book, refused, err := book.Quarantined(strings.NewReader(text))
	if err != nil {
		return nil, nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("%s: %w", name, err),
			Hint: "delete the file to go back to the built-in prices"}
	}
	return book, refused, nil
}

// told warns once about the refused prices.
func (req *Request) told(book *price.Book, refused []price.Refusal, name string, err error) (*price.Book, error) {
	if err == nil && len(refused) > 0 && !req.warnedPrices {
		req.warnedPrices = true
		r := refused[0]
		plain.Fprintf(req.Log, "curfew: %s of %s not used; the first is %s in %s: %s\n",
			plain.Count(len(refused), "price"),
			name, r.Entry.Type, r.Entry.Region, r.Reason)
	}
	return book, err
}

// Priced returns the configuration and the price book.
func (req *Request) Priced() (config.Config, *price.Book, error) {
	cfg, err := req.Config()
	if err != nil {
		return cfg, nil, err
	}
	book, err := req.PriceBook(cfg)
	return cfg, book, err
}

// Advisor reads the published data of the Spot Instance Advisor, dated by its file; nil for no
// file.
func (req *Request) Advisor(name string) (*spot.Advisor, error) {
	if name == "" {
		return nil, nil
	}
	advisor, err := ReadPlan(req, name, spot.ReadAdvisor)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(req.Path(name)); err == nil {
		advisor.AsOf = info.ModTime().UTC().Format(time.DateOnly)
	}
	return &advisor, nil
}

// Interruptions returns the interruption rate of spot machines: as configured, or learned from the
// configured past runs, or a range.
func (req *Request) Interruptions(cfg config.Config) (spot.Interruptions, error) {
	if rate := cfg.Spot.InterruptionsPerHour; rate > 0 {
		return spot.Configured(rate), nil
	}
	if cfg.Spot.Runs == "" {
		return spot.Unmeasured(), nil
	}
	runs, err := ReadPlan(req, cfg.Spot.Runs, estimate.ReadRuns)
	if err != nil {
		return spot.Interruptions{}, err
	}
	return estimate.Interruptions(spot.Unmeasured(), runs, req.Now()), nil
}
