package clouds

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/durable"
)

// keptBills caches the answers of Cost Explorer in the data directory, one file per account.
type keptBills struct {
	dir string
	// read is true if nothing may be written.
	read bool
}

func (k keptBills) path(account string) (string, bool) {
	return filepath.Join(k.dir, "billed", "aws-"+account+".json"), account != "" &&
		strings.Trim(account, "0123456789") == ""
}

// Bill implements aws.BillKeeper. An unreadable file counts as missing.
func (k keptBills) Bill(account string) []byte {
	path, ok := k.path(account)
	if !ok {
		return nil
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return doc
}

// KeepBill implements aws.BillKeeper.
func (k keptBills) KeepBill(account string, doc []byte) error {
	path, ok := k.path(account)
	if !ok || k.read {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(doc)
		return err
	})
}
