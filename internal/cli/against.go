package cli

import (
	"errors"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/view"
)

// lastScan names, for --against, what the newest scan saw.
const lastScan = "last"

// newestInventory reads what the last scan saw, of whichever cloud.
func newestInventory(dir string) (*view.Inventory, error) {
	all, err := daemon.Inventories(dir)
	if err != nil {
		return nil, err
	}
	var newest *view.Inventory
	for i := range all {
		if newest == nil || all[i].At.After(newest.At) {
			newest = &all[i]
		}
	}
	if newest == nil {
		return nil, &failure{exit: ExitError, code: "no_scan", err: errors.New("there is no kept scan to check against"), hint: "run `curfew scan` first"}
	}
	return newest, nil
}
