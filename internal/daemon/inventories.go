package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// Bounds of a kept inventory: some hundred thousand resources.
const (
	maxInventory       = 256 << 20
	maxInventoryValues = 20_000_000
)

// SaveInventory keeps what a scan saw: the whole file or none.
func SaveInventory(dir, cloud string, audit *round.Result) error {
	dir = filepath.Join(dir, "inventories")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return ReplaceFile(filepath.Join(dir, cloud+".json"), func(w io.Writer) error { return json.NewEncoder(w).Encode(view.NewInventory(cloud, audit)) })
}

// Inventories reads what the last scan of each cloud saw; none where nothing was scanned.
func Inventories(dir string) ([]view.Inventory, error) {
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
			return nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("%s holds no inventory of a scan", name), Hint: "run `curfew scan` again"}
		}
		all = append(all, doc)
	}
	return all, nil
}
