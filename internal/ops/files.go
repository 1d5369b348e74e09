package ops

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/view"
)

// MaxText is the maximum size of a file to send, in bytes.
const MaxText = 900_000

func tooLong(name string) error {
	return usage(fmt.Errorf("%s is longer than the %d bytes that a server takes", name, MaxText))
}

// readSent returns the text of a file to send.
func readSent(name string, in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, MaxText+1))
	if err != nil {
		return "", &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: %w", name, runtime.Cause(err)),
		}
	}
	if len(text) > MaxText {
		return "", tooLong(name)
	}
	return string(text), nil
}

// readWork returns the text of a YAML or JSON file to send; the name "-" reads in.
func (c *Call) readWork(name string, in io.Reader) (string, error) {
	src, err := c.Request.Read(name, in, govern.MaxPlan)
	if err == nil && len(src) > MaxText {
		err = tooLong(name)
	}
	return string(src), err
}

// ImportBillInput names or contains a bill.
type ImportBillInput struct {
	Body struct {
		Path          string `json:"path,omitempty" maxLength:"1000" example:"focus-2026-10.csv" doc:"A file, a folder or s3://bucket/prefix under serve.bill_paths."`
		Content       string `json:"content,omitempty" maxLength:"900000" doc:"In place of a path: the text of a bill in CSV."`
		Name          string `json:"name,omitempty" maxLength:"100" doc:"With content: its name, such as focus-2026-10.csv. An import of the same name replaces it."`
		DryRun        bool   `json:"dry_run,omitempty" doc:"Keep nothing, and say what would be replaced." flag:"dry-run" help:"say what would be replaced, and keep nothing"`
		ZeroPurchases bool   `json:"zero_purchases,omitempty" doc:"Set the effective cost of purchases of commitments to 0, as FOCUS defines it, where the export has another (Azure)." flag:"zero-purchases" help:"set the effective cost of purchases of commitments to 0, as FOCUS defines it (Azure exports count it twice)"`
	}
	// File is a path of the command line, read with the credentials of Profile.
	File    string
	Profile string `flag:"profile" help:"AWS profile, for s3://"`
}

// ImportBill imports a bill.
var ImportBill = declare(Operation[ImportBillInput, view.Bill]{
	Info: Info{ID: "import-bill", Method: post, Path: "bills", Role: approval.RoleAdmin,
		Summary: "Import a bill from an allowed path, or the text of one", Schema: view.BillSchema,
		Example: map[string]any{"path": "focus-2026-10.csv"},
		Command: "bill import", Why: "bills are in the state",
		Flags: map[string]Location{"profile": ByState}},
	Send: func(ctx context.Context, c *Call, in *ImportBillInput) error {
		if strings.HasPrefix(in.File, "s3://") {
			in.Body.Path = in.File
			return nil
		}
		text, err := c.billText(in.File)
		if err == nil {
			err = spend.CheckBill(ctx, c.Request, in.File) // mistakes are reported under its local path
		}
		in.Body.Content, in.Body.Name = text, strings.TrimSuffix(filepath.Base(in.File), ".gz")
		return err
	},
	Do: func(ctx context.Context, c *Call, in ImportBillInput) (Reply[view.Bill], error) {
		if in.File != "" {
			return reply(spend.BillImport(ctx, c.Request,
				spend.BillSource{
					Path: in.File, Profile: in.Profile, ZeroPurchases: in.Body.ZeroPurchases,
				}, in.Body.DryRun))
		}
		return reply(spend.ImportBill(ctx, c.Request, spend.BillUpload{
			Path:          in.Body.Path,
			Content:       in.Body.Content,
			Name:          in.Body.Name,
			DryRun:        in.Body.DryRun,
			ZeroPurchases: in.Body.ZeroPurchases,
		}))
	},
})

// billText returns the text of a bill to send: one CSV file.
func (c *Call) billText(path string) (string, error) {
	notSent := func(why string) error {
		return &runtime.Error{
			Class: runtime.Usage, Code: "not_sent",
			Err: fmt.Errorf("bill import %s: %s, and a server takes one file of CSV of at most %d bytes", path, why,
				MaxText),
			Hint: "put it under serve.bill_paths of the server, or give --data-dir DIR for a state here"}
	}
	if st, err := os.Stat(c.Request.Path(path)); err == nil && st.IsDir() {
		return "", notSent("it is a folder")
	}
	file, err := c.Request.Input(path)
	if err != nil {
		return "", nil //nolint:nilerr // reading it as a bill reports the error
	}
	defer file.Close() //nolint:errcheck // it was only read
	head := bufio.NewReader(file)
	magic, _ := head.Peek(4)
	if bytes.HasPrefix(magic, []byte("PAR1")) {
		return "", notSent("it is Parquet")
	}
	text, err := io.ReadAll(io.LimitReader(head, MaxText+1))
	switch {
	case err != nil:
		return "", &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: %w", path, err),
		}
	case len(text) > MaxText:
		return "", notSent("it is longer")
	}
	return string(text), nil
}

// SettingsInput is the next version of the shared settings, of prices, or of both.
type SettingsInput struct {
	Body struct {
		Settings *string `json:"settings,omitempty" maxLength:"500000" example:"approvers: {ana: [admin, approver]}" doc:"The text of the settings, as curfew settings set takes it."`
		Prices   *string `json:"prices,omitempty" maxLength:"900000" doc:"The text of a price overlay (CSV)."`
		Name     string  `json:"name,omitempty" maxLength:"400" default:"settings" doc:"What the text of the settings is called, for messages."`
		PricesOf string  `json:"prices_name,omitempty" maxLength:"400" default:"prices" doc:"What the text of the prices is called, for messages." flag:"prices" help:"price overlay as <file>, as <curfew price update> keeps it"`
		Last     *int64  `json:"last,omitempty" minimum:"0" doc:"The version of the settings that was read; where another one holds by now, the answer is 409."`
		Reason   string  `json:"reason" minLength:"1" maxLength:"1000" example:"a new team" doc:"Why, for the audit log." flag:"reason" help:"why, for the audit log"`
	}
	// FromFiles is true if Name and PricesOf are files of the command line.
	FromFiles bool
}

// read replaces file names by their content.
func (in *SettingsInput) read(c *Call) error {
	if !in.FromFiles {
		return nil
	}
	t, err := govern.SettingsOf(c.Request, in.Body.Name, in.Body.PricesOf)
	in.Body.Settings, in.Body.Prices = t.Settings, t.Prices
	return err
}

// GetSettings shows the shared settings.
var GetSettings = declare(Operation[None, view.Settings]{
	Info: Info{ID: "get-settings", Method: get, Path: "settings", Role: approval.RoleAdmin,
		Summary: "Show the shared settings and all their versions", Schema: view.SettingsSchema,
		Command: "settings", Why: "the shared settings are in the state"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Settings], error) {
		return reply(govern.Settings(ctx, c.Request))
	},
})

// SetSettings sets the next version of the shared settings.
var SetSettings = declare(Operation[SettingsInput, view.SettingsSet]{
	Info: Info{ID: "set-settings", Method: post, Path: "settings", Role: approval.RoleAdmin,
		Summary: "Set the next version of the shared settings, of prices, or of both", Schema: view.SettingsSetSchema,
		Example: map[string]any{
			"settings": "approvers: {ana: [admin, approver]}\nbudgets: [{id: vision, team: vision, purpose: any, amount: " +
				"100000}]",
			"reason": "a new team",
		},
		Command: "settings set", Why: "the shared settings are in the state"},
	FlagDefaults: map[string]string{"prices": ""},
	Send: func(_ context.Context, c *Call, in *SettingsInput) error {
		if err := in.read(c); err != nil {
			return err
		}
		for name, text := range map[string]*string{in.Body.Name: in.Body.Settings, in.Body.PricesOf: in.Body.Prices} {
			if text != nil && len(*text) > MaxText {
				return tooLong(name)
			}
		}
		return nil
	},
	Do: func(ctx context.Context, c *Call, in SettingsInput) (Reply[view.SettingsSet], error) {
		if err := in.read(c); err != nil {
			return Reply[view.SettingsSet]{}, err
		}
		b := in.Body
		return reply(govern.PutSettings(ctx, c.Request, govern.SettingsText{
			Settings:   b.Settings,
			Prices:     b.Prices,
			Name:       b.Name,
			PricesName: b.PricesOf,
			Last:       b.Last,
		}, b.Reason))
	},
})
