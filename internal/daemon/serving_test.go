package daemon

import (
	"errors"
	"testing"

	"github.com/curfew-dev/curfew/internal/config"
)

// TestMayServe holds that the API starts nothing on its own machine unless that is configured.
func TestMayServe(t *testing.T) {
	for _, c := range []struct {
		name, provider string
		serve, may     bool
	}{{"by default", ProviderLocal, false, false}, {"configured", ProviderLocal, true, true}, {"another provider", ProviderAWS, false, true}} {
		err := MayServe(config.Config{Local: config.Local{Serve: c.serve}}, c.provider)
		var wired *Error
		if c.may && err != nil || !c.may && (!errors.As(err, &wired) || wired.Class != Denied || wired.Hint == "") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
