package budget

import (
	"compress/gzip"
	"encoding/csv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/data"
)

// replayed forecasts each span of 5 to 30 days of a series from the days before, and returns how
// often the range covers the outcome, with the mean width of the range relative to the outcome.
func replayed(t *testing.T, series []money.Amount, first time.Time, every int) (held, all int, width float64) {
	t.Helper()
	for at := 35; at+5 <= len(series); at += every {
		days := min(5+at*7%26, len(series)-at)
		through := first.AddDate(0, 0, at)
		past := series[max(0, at-monthlyHistoryDays):at]
		f, err := forecast(0, past, through, through.AddDate(0, 0, days))
		if err != nil {
			t.Fatal(err)
		}
		var truth money.Amount
		for _, v := range series[at : at+days] {
			truth += v
		}
		all++
		if truth >= f.Low && truth <= f.High {
			held++
		}
		width += money.Ratio(f.High-f.Low, max(truth, 1))
	}
	return held, all, width / float64(all)
}

// TestForecastCoversReplayedSeries replays series with the patterns of bills: working days, drift and
// monthly charges. The range must cover nine of ten outcomes.
func TestForecastCoversReplayedSeries(t *testing.T) {
	first := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		width float64 // at most
		of    func(random *rand.Rand, level float64, at time.Time) float64
		drift float64
	}{
		{"working days", 0.5, func(r *rand.Rand, _ float64, at time.Time) float64 {
			if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
				return 30 * (0.8 + 0.4*r.Float64())
			}
			return 100 * (0.8 + 0.4*r.Float64())
		}, 0},
		{"drift", 0.6, func(r *rand.Rand, level float64, _ time.Time) float64 {
			return level * (0.9 + 0.2*r.Float64())
		}, 0.03},
		{"support on the first and tax on the third", 0.4, func(r *rand.Rand, _ float64, at time.Time) float64 {
			v := 100 * (0.9 + 0.2*r.Float64())
			switch at.Day() {
			case 1:
				v += 900
			case 3:
				v += 450
			}
			return v
		}, 0},
		{"growth that begins and ends", 1.3, func(r *rand.Rand, level float64, at time.Time) float64 {
			return level * growing(at) * (0.9 + 0.2*r.Float64())
		}, 0.02},
	} {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 9))
			level := 100.0
			var series []money.Amount
			for d := range 500 {
				level *= math.Exp(random.NormFloat64() * tc.drift)
				series = append(series, money.Amount(tc.of(random, level, first.AddDate(0, 0, d))*float64(money.USD)))
			}
			held, all, width := replayed(t, series, first, 3)
			if held*100 < all*87 || width > tc.width {
				t.Errorf("the range holds %d of %d, %.2f wide", held, all, width)
			}
		})
	}
}

// growing is the spend of a team whose projects double its use within a month each.
func growing(at time.Time) float64 {
	level := 1.0
	for _, begin := range []int{40, 130, 220, 330, 420} {
		day := float64(at.Sub(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))/(24*time.Hour)) - float64(begin)
		level *= math.Pow(2, min(1, max(0, day/30)))
	}
	return level
}

// TestForecastFindsMonthlyCharges checks that a support fee on the first of the month is expected
// again, and that a day of unusual work is not.
func TestForecastFindsMonthlyCharges(t *testing.T) {
	today := time.Date(2026, 9, 21, 0, 0, 0, 0, time.UTC)
	var past []money.Amount
	for d := range 80 {
		v := 50 * money.USD
		switch at := today.AddDate(0, 0, d-80); {
		case at.Day() == 1:
			v += 700 * money.USD
		case at.Equal(time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC)):
			v += 900 * money.USD
		}
		past = append(past, v)
	}
	cleaned, found := monthlyCharges(past, today)
	if len(found) != 1 || found[1] != 700*money.USD {
		t.Fatalf("found %v", found)
	}
	for i, v := range cleaned {
		if at := today.AddDate(0, 0, i-80); (v == 50*money.USD) == (at.Month() == 8 && at.Day() == 17) {
			t.Errorf("%s is cleaned to %s", at.Format(time.DateOnly), v)
		}
	}
	for to, want := range map[time.Time]money.Amount{
		today.AddDate(0, 0, 9):  0,
		today.AddDate(0, 0, 11): 700 * money.USD,
		today.AddDate(0, 1, 12): 1400 * money.USD,
	} {
		if f, err := forecast(0, past, today, to); err != nil || f.MonthlyUSD != want {
			t.Errorf("until %s: %s is due, %v; want %s", to.Format(time.DateOnly), f.MonthlyUSD, err, want)
		}
	}
}

// TestForecastCoversRecordedUse replays the daily GPU-hours of a recorded cluster, which grows
// twentyfold over the record, at a dollar each. The models were chosen on generated series only.
func TestForecastCoversRecordedUse(t *testing.T) {
	file, err := os.Open(data.Path(t, "alibaba-openb-2023/pods.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := csv.NewReader(text)
	head, err := rows.Read()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range head {
		column[name] = i
	}
	const days = 149 // the last day is incomplete
	series := make([]float64, days)
	for {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(row[column[name]], 64)
			if err != nil {
				return 0
			}
			return v
		}
		from, to := number("creation_time"), number("deletion_time")
		for d := int(from / 86400); d < days && float64(d)*86400 < to; d++ {
			hours := (min(to, float64(d+1)*86400) - max(from, float64(d)*86400)) / 3600
			series[d] += number("num_gpu") * number("gpu_milli") / 1000 * hours
		}
	}
	var dollars []money.Amount
	for _, v := range series[20:] {
		dollars = append(dollars, money.Amount(v*float64(money.USD)))
	}
	held, all, width := replayed(t, dollars, time.Date(2023, 3, 1, 0, 0, 0, 0, time.UTC), 2)
	if held*10 < all*9 || width > 2 {
		t.Errorf("the range holds %d of %d, %.2f wide", held, all, width)
	}
	t.Logf("the range holds %d of %d, %.2f wide", held, all, width)
}
