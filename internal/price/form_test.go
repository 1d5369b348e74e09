package price

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

const ownHeader = "cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\n"

func TestLoad(t *testing.T) {
	b := book(t)
	err := b.Load(strings.NewReader(ownHeader +
		"aws,compute,g6.2xlarge,us-east-1,on-demand,,0.90,hour,,,our contract,2026-11-01\n" +
		"aws,compute,p5e.48xlarge,us-east-2,on-demand,,70,hour,,,our contract,2026-11-01\n" +
		"aws,rate,s3:STANDARD,us-east-1,on-demand,,0.02,GiB-month,,,our contract,2026-11-01\n" +
		"aws,rate,s3:STANDARD,us-east-1,on-demand,100,0.01,GiB-month,,,our contract,2026-11-01\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := b.OnDemand("g6.2xlarge", "us-east-1"); err != nil || p.Rate.String() != "0.90" ||
		p.Source != "our contract" {
		t.Errorf("the user's price: got %+v, %v; want 0.90", p, err)
	}
	if p, err := b.OnDemand("p5e.48xlarge", "us-east-2"); err != nil || p.Rate.String() != "70.00" {
		t.Errorf("a price the book lacked: got %+v, %v; want 70", p, err)
	}
	if p, _ := b.Rate(ItemS3Standard, "us-east-1"); len(p.Tiers) != 1 {
		t.Errorf("tiers: got %v, want the user's one and none of the book's", p.Tiers)
	}
	if p, _ := b.OnDemand("g6.2xlarge", "us-east-2"); p.Rate.String() != "0.9776" {
		t.Errorf("another region: got %s, want the book's 0.9776", p.Rate)
	}
	if p, _ := book(t).OnDemand("g6.2xlarge", "us-east-1"); p.Rate.String() != "0.9776" {
		t.Errorf("another book: got %s, want 0.9776: loading must not reach it", p.Rate)
	}
}

func TestLoadIsStrict(t *testing.T) {
	const row = "aws,compute,g6.xlarge,us-east-1,on-demand,,0.8,hour,,,x,2026-01-02\n"
	for _, tc := range []struct{ name, in, says string }{
		{"empty", "", "the file is empty"},
		{"another header", "cloud,service\n", "line 1: the header is"},
		{"a mistyped column", strings.Replace(ownHeader, "usd", "usb", 1) + row, "line 1: the header is"},
		{"a column twice", strings.Replace(ownHeader, "unit", "usd", 1), `column "usd" is there twice`},
		{"a field short", ownHeader + row + "aws,compute\n", "line 3"},
		{"zero", ownHeader + strings.Replace(row, "0.8", "0", 1), "line 2: a price of 0.00 is not a price"},
		{"below zero", ownHeader + strings.Replace(row, "0.8", "-1", 1), "line 2: a price of -1.00 is not a price"},
		{"no price", ownHeader + strings.Replace(row, "0.8", "", 1), "line 2: usd"},
		{"not a number", ownHeader + strings.Replace(row, "0.8", "cheap", 1), "line 2: usd"},
		{"NaN", ownHeader + strings.Replace(row, "0.8", "NaN", 1), "line 2: usd"},
		{
			"another unit", ownHeader + strings.Replace(row, "hour", "month", 1),
			`line 2: a machine is priced by the hour, not by the "month"`,
		},
		{
			"an unknown item", ownHeader + strings.Replace(row, "compute,g6.xlarge", "rate,gold", 1),
			`line 2: item "gold" is unknown`,
		},
		{"an unknown term", ownHeader + strings.Replace(row, "on-demand", "haggled", 1), `line 2: term "haggled"`},
		{"no source", ownHeader + strings.Replace(row, ",x,", ",,", 1), "line 2: no source"},
		{"no date", ownHeader + strings.Replace(row, "2026-01-02", "", 1), "line 2: as_of"},
		{"a date long ago", ownHeader + strings.Replace(row, "2026", "0026", 1), "line 2: as_of"},
		{"twice", ownHeader + row + row, "line 3: aws g6.xlarge in us-east-1, on-demand is priced twice"},
		{
			"a tier without its first rate", ownHeader + strings.Replace(row, ",,0.8", ",10,0.8", 1),
			"line 2: a tier of",
		},
		{
			"tiers that fall",
			ownHeader + row + strings.Replace(row, ",,0.8", ",10,0.8", 1) + strings.Replace(row, ",,0.8", ",5,0.8", 1),
			"line 4: tiers do not rise: 5 after 10",
		},
		{
			"a tier of another source",
			ownHeader + row + strings.Replace(strings.Replace(row, ",,0.8", ",10,0.8", 1), ",x,", ",y,", 1),
			"line 3: a tier of",
		},
		{
			"a control character", ownHeader + strings.Replace(row, ",x,", ",\x1b[2J,", 1),
			"line 2: source holds a control character",
		},
		{
			"a name without end", ownHeader + strings.Replace(row, ",x,", ","+strings.Repeat("x", 401)+",", 1),
			"line 2: source is longer",
		},
	} {
		b := new(Book)
		err := b.Load(strings.NewReader(tc.in))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.says)
		}
		if len(b.Entries()) != 0 {
			t.Errorf("%s: %d entries were kept", tc.name, len(b.Entries()))
		}
	}
}

func TestTiersAreNotShared(t *testing.T) {
	b := book(t)
	before, _ := b.Rate(ItemS3Standard, "us-east-1")
	var file bytes.Buffer
	own := Entry{Cloud: AWS, Service: Rates, Item: ItemS3Standard, Region: "us-east-1", Term: OnDemand, Price: before}
	own.Price.Source = "our contract"
	if err := writeEntries(&file, []Entry{own}); err != nil {
		t.Fatal(err)
	}
	if err := b.Load(&file); err != nil {
		t.Fatal(err)
	}
	if after, _ := b.Rate(ItemS3Standard, "us-east-1"); !samePrice(before, after) {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

// genEntry generates a valid entry.
func genEntry(t *rapid.T) Entry {
	name := rapid.StringMatching(`[a-z][a-z0-9.,"' -]{0,10}[a-z0-9]`)
	e := Entry{
		Cloud: name.Draw(t, "cloud"), Service: Compute, Type: name.Draw(t, "type"), Region: name.Draw(t, "region"),
		Term:  rapid.SampledFrom([]Term{OnDemand, Spot}).Draw(t, "term"),
		Price: Price{Unit: "hour", Source: name.Draw(t, "source")}}
	if rapid.Bool().Draw(t, "accelerated") {
		e.Accelerator, e.AcceleratorMilli = name.Draw(t, "accelerator"), rapid.Int64Range(1, 64_000).Draw(t, "milli")
	}
	if rapid.Bool().Draw(t, "rate") {
		e.Service, e.Type, e.Accelerator, e.AcceleratorMilli = Rates, "", "", 0
		e.Item = rapid.SampledFrom(slices.Sorted(maps.Keys(units))).Filter(func(i Item) bool {
			return i.Unit() != ""
		}).Draw(t, "item")
		e.Price.Unit = e.Item.Unit()
	}
	e.Price.Rate = money.Rate(rapid.Int64Min(1).Draw(t, "usd"))
	e.Price.AsOf = time.Date(2026, 1, 1+rapid.IntRange(0, 700).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
	above := int64(0)
	for range rapid.IntRange(0, 3).Draw(t, "tiers") {
		above += rapid.Int64Range(1, 1e9).Draw(t, "above")
		e.Price.Tiers = append(e.Price.Tiers, Tier{above, money.Rate(rapid.Int64Min(1).Draw(t, "usd"))})
	}
	return e
}

func TestSaveAndLoadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &Book{overlay: map[key]Entry{}}
		for range rapid.IntRange(0, 8).Draw(t, "entries") {
			e := genEntry(t)
			if err := e.checkComplete(); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			b.overlay[e.key()] = e
		}
		var file bytes.Buffer
		if err := b.Save(&file); err != nil {
			t.Fatal(err)
		}
		read := new(Book)
		if err := read.Load(bytes.NewReader(file.Bytes())); err != nil {
			t.Fatalf("%v in\n%s", err, file.String())
		}
		want, got := b.Entries(), read.Entries()
		if len(got) != len(want) {
			t.Fatalf("%d entries were read, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i].key() != want[i].key() || !samePrice(got[i].Price, want[i].Price) ||
				!got[i].Price.AsOf.Equal(want[i].Price.AsOf) ||
				got[i].Accelerator != want[i].Accelerator || got[i].AcceleratorMilli != want[i].AcceleratorMilli ||
				got[i].Price.Source != want[i].Price.Source {
				t.Fatalf("got %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// FuzzLoad checks that loaded prices are positive and survive a round trip.
func FuzzLoad(f *testing.F) {
	f.Add(ownHeader + "aws,compute,g6.xlarge,us-east-1,on-demand,,0.8,hour,L4,1,x,2026-01-02\n")
	f.Add(ownHeader +
		"aws,rate,s3:STANDARD,,on-demand,,0.02,GiB-month,,,x,2026-01-02\naws,rate,s3:STANDARD,,on-demand,9,0.01,GiB-month,,,x,2026-01-02\n")
	f.Add("cloud\n\"")
	f.Fuzz(func(t *testing.T, in string) {
		b := new(Book)
		if err := b.Load(strings.NewReader(in)); err != nil {
			return
		}
		roundTrip(t, b)
	})
}

// roundTrip fails if a book's overlay does not survive a round trip through Save and Load.
func roundTrip(t *testing.T, b *Book) {
	t.Helper()
	var first, second bytes.Buffer
	if err := b.Save(&first); err != nil {
		t.Fatal(err)
	}
	again := new(Book)
	if err := again.Load(bytes.NewReader(first.Bytes())); err != nil {
		t.Fatalf("%v in\n%s", err, first.String())
	}
	if err := again.Save(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Fatalf("saved as\n%s\nand again as\n%s", first.String(), second.String())
	}
	for _, e := range again.Entries() {
		for _, r := range e.Price.rates() {
			if r <= 0 {
				t.Fatalf("%s costs %s", e, r)
			}
		}
	}
}
