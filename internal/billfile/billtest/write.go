// Package billtest makes bills for tests and measurements.
package billtest

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/curfew-dev/curfew/internal/bill"
)

// Row is a row of FOCUS 1.0 as AWS Data Exports write it to Parquet: costs as binary
// numbers, times as timestamps. Tags are a JSON text.
type Row struct {
	AvailabilityZone         string    `parquet:"AvailabilityZone,optional,dict"`
	BilledCost               float64   `parquet:"BilledCost,dict"`
	BillingAccountID         string    `parquet:"BillingAccountId,dict"`
	BillingCurrency          string    `parquet:"BillingCurrency,dict"`
	BillingPeriodEnd         time.Time `parquet:"BillingPeriodEnd,timestamp(microsecond),dict"`
	BillingPeriodStart       time.Time `parquet:"BillingPeriodStart,timestamp(microsecond),dict"`
	ChargeCategory           string    `parquet:"ChargeCategory,dict"`
	ChargeClass              string    `parquet:"ChargeClass,optional,dict"`
	ChargeDescription        string    `parquet:"ChargeDescription,optional,dict"`
	ChargePeriodEnd          time.Time `parquet:"ChargePeriodEnd,timestamp(microsecond),dict"`
	ChargePeriodStart        time.Time `parquet:"ChargePeriodStart,timestamp(microsecond),dict"`
	CommitmentDiscountID     string    `parquet:"CommitmentDiscountId,optional,dict"`
	CommitmentDiscountStatus string    `parquet:"CommitmentDiscountStatus,optional,dict"`
	CommitmentDiscountType   string    `parquet:"CommitmentDiscountType,optional,dict"`
	ConsumedQuantity         *float64  `parquet:"ConsumedQuantity,optional,dict"`
	ConsumedUnit             string    `parquet:"ConsumedUnit,optional,dict"`
	ContractedCost           *float64  `parquet:"ContractedCost,optional,dict"`
	EffectiveCost            float64   `parquet:"EffectiveCost,dict"`
	ListCost                 float64   `parquet:"ListCost,dict"`
	PricingCategory          string    `parquet:"PricingCategory,optional,dict"`
	ProviderName             string    `parquet:"ProviderName,dict"`
	PublisherName            string    `parquet:"PublisherName,dict"`
	RegionID                 string    `parquet:"RegionId,optional,dict"`
	RegionName               string    `parquet:"RegionName,optional,dict"`
	ResourceID               string    `parquet:"ResourceId,optional,dict"`
	ResourceType             string    `parquet:"ResourceType,optional,dict"`
	ServiceCategory          string    `parquet:"ServiceCategory,dict"`
	ServiceName              string    `parquet:"ServiceName,dict"`
	SkuID                    string    `parquet:"SkuId,optional,dict"`
	SubAccountID             string    `parquet:"SubAccountId,optional,dict"`
	Tags                     string    `parquet:"Tags,optional,dict"`
}

// groupRows is the number of rows a row group of a written file has.
const groupRows = 1 << 19

// Write writes n rows of a built-in pattern to a Parquet file, spread over a fleet as
// [Spread] does it: machines, volumes, buckets, transfers, a savings plan and a credit,
// over the days of September 2024. It returns the exact sum of BilledCost.
func Write(path string, n int) (bill.Decimal, error) {
	return Spread(path, Pattern(), n)
}

// Repeat writes n rows to a Parquet file, which are the given ones over and over again,
// and returns the exact sum of BilledCost.
func Repeat(path string, rows []Row, n int) (bill.Decimal, error) {
	return write(path, rows, n, func(r Row, _ int) Row { return r })
}

// hours is the number of hours of a resource [Spread] writes.
const hours = 24

// Spread writes n rows to a Parquet file, which are the given ones as a fleet has them:
// as many copies of each resource as it takes for each to be billed for a day's hours,
// with amounts of its own. It returns the exact sum of BilledCost.
func Spread(path string, rows []Row, n int) (bill.Decimal, error) {
	copies := max(1, n/max(1, len(rows))/hours)
	return write(path, rows, n, func(r Row, turn int) Row {
		c, hour := turn%copies, turn/copies%hours
		r.ChargePeriodStart = r.ChargePeriodStart.Truncate(hours * time.Hour).Add(time.Duration(hour) * time.Hour)
		r.ChargePeriodEnd = r.ChargePeriodStart.Add(time.Hour)
		if r.ResourceID != "" && c > 0 {
			r.ResourceID += "-" + strconv.Itoa(c)
		}
		if r.ConsumedQuantity != nil && r.ConsumedUnit != "Hours" {
			part := 1 + float64((c*hours+hour)%9973)/10000
			r.ConsumedQuantity = quantity(*r.ConsumedQuantity * part)
			for _, cost := range []*float64{&r.BilledCost, &r.EffectiveCost, &r.ListCost} {
				*cost = math.Round(*cost*part*1e12) / 1e12 // bills have about as many digits
			}
		}
		return r
	})
}

// write writes n rows: of makes them from the given ones, turn after turn.
func write(path string, rows []Row, n int, of func(r Row, turn int) Row) (sum bill.Decimal, err error) {
	if len(rows) == 0 {
		return sum, errors.New("write a bill: there are no rows to repeat")
	}
	f, err := os.Create(path)
	if err != nil {
		return sum, fmt.Errorf("write a bill: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := parquet.NewGenericWriter[Row](f, parquet.Compression(&parquet.Snappy))
	chunk := make([]Row, 0, len(rows))
	for left := n; left > 0; {
		chunk = chunk[:0]
		for _, r := range rows[:min(left, len(rows))] {
			chunk = append(chunk, of(r, (n-left)/len(rows)))
		}
		if _, err := w.Write(chunk); err != nil {
			return sum, fmt.Errorf("write %s: %w", path, err)
		}
		before := n - left
		left -= len(chunk)
		if before/groupRows != (n-left)/groupRows {
			if err := w.Flush(); err != nil {
				return sum, fmt.Errorf("write %s: %w", path, err)
			}
		}
		for i := range chunk {
			sum = sum.Add(exact(chunk[i].BilledCost))
		}
	}
	if err := w.Close(); err != nil {
		return sum, fmt.Errorf("write %s: %w", path, err)
	}
	return sum, nil
}

// exact returns the shortest decimal that stands for a binary number.
func exact(f float64) bill.Decimal {
	d, _ := bill.ParseDecimal(strconv.FormatFloat(f, 'e', -1, 64)) // finite, and of few digits
	return d
}

// Pattern returns the rows that [Write] repeats.
func Pattern() []Row {
	start := time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)
	var rows []Row
	for day := range 30 {
		for _, line := range pattern {
			r := line
			r.BillingAccountID, r.BillingCurrency, r.ProviderName, r.PublisherName = "123456789012", "USD", "AWS",
				"Amazon Web Services, Inc."
			r.BillingPeriodStart, r.BillingPeriodEnd = start, start.AddDate(0, 1, 0)
			r.ChargePeriodStart = start.AddDate(0, 0, day)
			r.ChargePeriodEnd = r.ChargePeriodStart.Add(time.Hour)
			r.ListCost, r.RegionID, r.RegionName = r.BilledCost, "us-east-1", "US East (N. Virginia)"
			if r.EffectiveCost == 0 {
				r.EffectiveCost = r.BilledCost
			}
			r.ContractedCost = &r.ListCost
			rows = append(rows, r)
		}
	}
	return rows
}

func quantity(v float64) *float64 { return &v }

const (
	visionTags = `{"team": "vision", "project": "ranking", "environment": "prod"}`
	speechTags = `{"Team": "speech", "cost-center": "4711", "environment": "dev"}`
	plan       = "arn:aws:savingsplans::123456789012:savingsplan/0f3c"
)

// pattern is one day's charges.
var pattern = []Row{
	{
		BilledCost: 21.957642, ChargeCategory: bill.Usage,
		ChargeDescription: "$21.957642 per On Demand Linux p4d.24xlarge Instance Hour", ConsumedQuantity: quantity(1),
		ConsumedUnit: "Hours", PricingCategory: bill.Standard, ResourceID: "i-0a1b2c3d4e5f60718",
		ResourceType:    "instance",
		ServiceCategory: "Compute",
		ServiceName:     "Amazon Elastic Compute Cloud", SkuID: "P4D", SubAccountID: "210987654321", Tags: visionTags},
	{
		EffectiveCost: 0.987, ChargeCategory: bill.Usage,
		ChargeDescription: "g5.4xlarge Linux covered by Compute Savings Plans", ConsumedQuantity: quantity(1),
		ConsumedUnit: "Hours", PricingCategory: bill.Committed, CommitmentDiscountID: plan,
		CommitmentDiscountStatus: bill.Used, CommitmentDiscountType: "Savings Plan",
		ResourceID: "i-0ffee0ddba11c0de5", ResourceType: "instance", ServiceCategory: "Compute",
		ServiceName: "Amazon Elastic Compute Cloud", SkuID: "G5",
		SubAccountID: "210987654321", Tags: speechTags},
	{
		BilledCost: 1.5e-7, ChargeCategory: bill.Usage,
		ChargeDescription: "$0.08 per GB-month of General Purpose (gp3) provisioned storage - US East (N. Virginia)",
		ConsumedQuantity:  quantity(0.0000018750), ConsumedUnit: "GB-Months", PricingCategory: bill.Standard,
		ResourceID: "vol-0123456789abcdef0", ResourceType: "volume",
		ServiceCategory: "Storage", ServiceName: "Amazon Elastic Compute Cloud", SkuID: "GP3",
		SubAccountID: "210987654321",
		Tags:         visionTags},
	{
		BilledCost: 0.0230000001, ChargeCategory: bill.Usage,
		ChargeDescription: "$0.023 per GB - first 50 TB / month of storage used", ConsumedQuantity: quantity(1),
		ConsumedUnit: "GB-Months", PricingCategory: bill.Standard, ResourceID: "datasets", ResourceType: "bucket",
		ServiceCategory: "Storage",
		ServiceName:     "Amazon Simple Storage Service", SkuID: "S3", SubAccountID: "210987654321"},
	{
		BilledCost: 0.2, ChargeCategory: bill.Usage,
		ChargeDescription: "$0.02 per GB - US East (Northern Virginia) data transfer to US West (Oregon)",
		ConsumedQuantity:  quantity(10), ConsumedUnit: "GB", PricingCategory: bill.Standard, ResourceID: "datasets",
		ResourceType: "bucket", ServiceCategory: "Storage",
		ServiceName: "Amazon Simple Storage Service", SkuID: "XR", SubAccountID: "210987654321"},
	{
		BilledCost: -0.333333333333, ChargeCategory: bill.Credit, ChargeDescription: "Credit for research",
		ServiceCategory: "Compute",
		ServiceName:     "Amazon Elastic Compute Cloud", SubAccountID: "210987654321"},
}

// FromCSV reads rows of FOCUS 1.0, a missing value being empty or the word NULL.
func FromCSV(in io.Reader) ([]Row, error) {
	r := csv.NewReader(in)
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	at := map[string]int{}
	for i, h := range head {
		at[h] = i
	}
	var rows []Row
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		get := func(name string) string {
			i, ok := at[name]
			if !ok || strings.EqualFold(fields[i], "null") {
				return ""
			}
			return fields[i]
		}
		num := func(name string) *float64 {
			v, err := strconv.ParseFloat(get(name), 64)
			if err != nil {
				return nil
			}
			return &v
		}
		when := func(name string) time.Time {
			t, _ := time.Parse(time.DateTime, get(name)) // the zero time is told apart below
			return t
		}
		cost := func(name string) float64 {
			if v := num(name); v != nil {
				return *v
			}
			return 0
		}
		row := Row{
			AvailabilityZone: get("AvailabilityZone"), BilledCost: cost("BilledCost"),
			BillingAccountID: get("BillingAccountId"), BillingCurrency: get("BillingCurrency"),
			BillingPeriodEnd: when("BillingPeriodEnd"), BillingPeriodStart: when("BillingPeriodStart"),
			ChargeCategory: get("ChargeCategory"), ChargeClass: get("ChargeClass"),
			ChargeDescription: get("ChargeDescription"), ChargePeriodEnd: when("ChargePeriodEnd"),
			ChargePeriodStart:        when("ChargePeriodStart"),
			CommitmentDiscountID:     get("CommitmentDiscountId"),
			CommitmentDiscountStatus: get("CommitmentDiscountStatus"),
			CommitmentDiscountType:   get("CommitmentDiscountType"),
			ConsumedQuantity:         num("ConsumedQuantity"), ConsumedUnit: get("ConsumedUnit"),
			ContractedCost: num("ContractedCost"), EffectiveCost: cost("EffectiveCost"),
			ListCost: cost("ListCost"), PricingCategory: get("PricingCategory"), ProviderName: get("ProviderName"),
			PublisherName: get("PublisherName"),
			RegionID:      get("RegionId"), RegionName: get("RegionName"), ResourceID: get("ResourceId"),
			ResourceType:    get("ResourceType"),
			ServiceCategory: get("ServiceCategory"), ServiceName: get("ServiceName"), SkuID: get("SkuId"),
			SubAccountID: get("SubAccountId"), Tags: get("Tags")}
		if num("BilledCost") == nil || row.ChargePeriodStart.IsZero() || row.BillingPeriodStart.IsZero() {
			return nil, fmt.Errorf("row %d has no BilledCost or no period", len(rows)+1)
		}
		rows = append(rows, row)
	}
}
