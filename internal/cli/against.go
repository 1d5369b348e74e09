package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// lastScan names, for --against, what the newest scan saw.
const lastScan = "last"

// Bounds of a kept inventory: some hundred thousand resources.
const (
	maxInventory       = 256 << 20
	maxInventoryValues = 20_000_000
)

// saveInventory keeps what a scan saw: the whole file or none.
func saveInventory(dir, cloud string, audit *round.Result) error {
	dir = filepath.Join(dir, "inventories")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return daemon.ReplaceFile(filepath.Join(dir, cloud+".json"), func(w io.Writer) error { return json.NewEncoder(w).Encode(view.NewInventory(cloud, audit)) })
}

// inventories reads what the last scan of each cloud saw; none where nothing was scanned.
func inventories(dir string) ([]view.Inventory, error) {
	files, err := filepath.Glob(filepath.Join(dir, "inventories", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("look for the last scan: %w", err)
	}
	var all []view.Inventory
	for _, name := range files {
		f, err := config.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read the last scan: %w", err)
		}
		var doc view.Inventory
		src, err := document.Read(name, f, maxInventory)
		if err == nil {
			err = document.CheckJSON(name, src, maxInventoryValues)
		}
		if err == nil {
			err = json.Unmarshal(src, &doc)
		}
		if err := errors.Join(err, f.Close()); err != nil || doc.Schema != view.InventorySchema {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s holds no inventory of a scan", name), hint: "run `curfew scan` again"}
		}
		all = append(all, doc)
	}
	return all, nil
}

// newestInventory reads what the last scan saw, of whichever cloud.
func newestInventory(dir string) (*view.Inventory, error) {
	all, err := inventories(dir)
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
