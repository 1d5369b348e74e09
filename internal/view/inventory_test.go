package view

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// TestKeptPrice checks that a kept resource says its price in dollars under hourly_usd, and under
// the former name for versions that know no other.
func TestKeptPrice(t *testing.T) {
	r := &inventory.Resource{ID: "vol-1", Kind: inventory.KindVolume, Detail: &inventory.Volume{SizeGiB: 8}}
	for _, c := range []struct {
		hourly inventory.Fact[money.Amount]
		want   string
	}{
		{inventory.Known(1_250 * money.Amount(1000)), `"0.00125"`},
		{inventory.Known(money.Amount(0)), `"0.00"`},
		{inventory.Fact[money.Amount]{}, `null`},
	} {
		body, err := json.Marshal(NewKeptResource(r, c.hourly))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"hourly_usd", "hourly_nano_usd"} {
			if field := `"` + name + `":` + c.want + `,`; !strings.Contains(string(body), field) {
				t.Errorf("%s has no %s", body, field)
			}
		}
	}
}

// TestKeptPriceOfEarlierVersions reads documents of versions that knew one of the names.
func TestKeptPriceOfEarlierVersions(t *testing.T) {
	for body, want := range map[string]string{
		`{"hourly_nano_usd":"3.06"}`:                     `"3.06"`,
		`{"hourly_usd":"3.06"}`:                          `"3.06"`,
		`{"hourly_usd":"3.06","hourly_nano_usd":"3.06"}`: `"3.06"`,
		`{"hourly_usd":null,"hourly_nano_usd":null}`:     `null`,
		`{"hourly_nano_usd":"0.00"}`:                     `"0.00"`,
		`{}`:                                             `null`,
	} {
		var k KeptResource
		if err := json.Unmarshal([]byte(body), &k); err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(NewObserved(k, snapshot.Resource{}, inventory.TagMapping{}).Hourly)
		if err != nil {
			t.Fatal(err)
		}
		hourly, known := k.Priced(inventory.TagMapping{}).Hourly.Get()
		judged := "null"
		if known {
			judged = `"` + hourly.String() + `"`
		}
		if string(shown) != want || judged != want {
			t.Errorf("%s is shown as %s and judged as %s, want %s", body, shown, judged, want)
		}
	}
}
