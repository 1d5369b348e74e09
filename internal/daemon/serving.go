package daemon

import (
	"errors"

	"github.com/curfew-dev/curfew/internal/config"
)

// MayServe says whether the API of a service may start sessions at a provider, change them, or
// run something on them; nil: it may. Sessions of this machine are processes of the account
// that the service runs as, so that they are off unless the configuration of this machine says
// otherwise. They can be listed all the same.
func MayServe(cfg config.Config, provider string) error {
	if provider == ProviderLocal && !cfg.Local.Serve {
		return &Error{Class: Denied, Code: "local_off", Err: errors.New("the service starts no sessions on its own machine"), Hint: "set local.serve: true in the curfew.yaml of that machine, or use --cloud aws"}
	}
	return nil
}
