package aws_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// dating dates every response.
type dating struct{ at time.Time }

func (d dating) Do(r *http.Request) (*http.Response, error) {
	out, err := http.DefaultClient.Do(r)
	if err == nil && !d.at.IsZero() {
		out.Header.Set("Date", d.at.Format(http.TimeFormat))
	}
	return out, err
}

// TestReadsProviderClock checks that an observation is dated by the provider's responses.
func TestReadsProviderClock(t *testing.T) {
	actingCloud(t)
	t.Setenv("AWS_CA_BUNDLE", "")
	for _, at := range []time.Time{{}, time.Now().UTC().Truncate(time.Second).Add(-time.Minute)} {
		c, err := aws.New(t.Context(), aws.Options{Regions: []string{elsewhere}, HTTP: dating{at}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.List(t.Context(), round.Query{
			Now: time.Now(), Kinds: map[inventory.Kind]bool{inventory.KindInstance: true},
		})
		if err != nil || !o.ProviderTime.Equal(at) {
			t.Errorf("answers of %s: %s, %v", at, o.ProviderTime, err)
		}
	}
}
