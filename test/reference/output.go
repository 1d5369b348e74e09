package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/plan/spot"
	"github.com/curfew-dev/curfew/internal/plan/tco"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/witness"
)

// output is a document that curfew prints or sends.
type output struct {
	// schema is its version, by the command that prints it, and forms are its possible types.
	schema, by string
	forms      []any
}

// outputs lists all documents. TestEveryVersionHasASchema compares the list with the code.
var outputs = []output{
	{view.ScanSchema, "curfew scan -o json", []any{view.Scan{}}},
	{view.InventorySchema, "curfew scan, in the data directory", []any{view.Inventory{}}},
	{view.FixSchema, "curfew fix -o json", []any{view.Fixes{}}},
	{view.UndoSchema, "curfew fix --undo -o json", []any{view.Undo{}}},
	{view.PolicyCheckSchema, "curfew policy check -o json", []any{view.PolicyCheck{}}},
	{view.PolicyTestSchema, "curfew policy test -o json", []any{view.PolicyTest{}}},
	{view.PolicyExplainSchema, "curfew policy explain -o json", []any{view.PolicyExplain{}}},
	{view.TuneSchema, "curfew policy tune -o json", []any{view.Tune{}}},
	{view.BacktestSchema, "curfew backtest -o json", []any{view.Backtest{}}},
	{view.FleetReplaySchema, "curfew backtest --arrivals -o json", []any{view.FleetReplay{}}},
	{view.FleetHistorySchema, "curfew explain FLEET -o json", []any{view.FleetHistory{}}},
	{view.EnforceSchema, "curfew enforce -o json", []any{view.Enforce{}}},
	{view.DemoSchema, "curfew enforce --demo -o json", []any{view.Demo{}}},
	{view.KeepSchema, "curfew keep RESOURCE -o json", []any{view.Keep{}}},
	{view.KeepsSchema, "curfew keep -o json", []any{view.Keeps{}}},
	{view.FusesSchema, "curfew confirm -o json", []any{view.Fuses{}}},
	{view.ConsentSchema, "curfew consent -o json", []any{view.Consent{}}},
	{view.FreezeSchema, "curfew freeze and unfreeze -o json", []any{view.Freeze{}}},
	{view.VersionSchema, "curfew version -o json", []any{view.Version{}}},
	{view.StateSchema, "curfew state -o json", []any{view.State{}}},
	{view.StateBackupSchema, "curfew state backup -o json", []any{view.StateBackup{}}},
	{witness.StateSchema, "what a witness keeps of a state", []any{witness.Record{}}},
	{witness.AccountSchema, "what a witness keeps of an account", []any{witness.Owner{}}},
	{view.TagSchema, "curfew tag -o json", []any{view.Tags{}}},
	{view.CostsSchema, "curfew costs -o json", []any{view.Costs{}}},
	{view.UnitsSchema, "curfew costs units -o json", []any{view.Units{}}},
	{view.UnitCostsSchema, "an item of curfew costs units -o json", []any{view.UnitCosts{}}},
	{view.SharesSchema, "curfew costs shares -o json", []any{view.Shares{}}},
	{view.BudgetSchema, "curfew budget -o json", []any{view.Budgets{}}},
	{view.HoldsSchema, "curfew budget holds -o json", []any{view.Holds{}}},
	{view.RunsSchema, "curfew ls -o json", []any{view.Runs{}}},
	{view.ProfileSchema, "curfew profile -- CMD -o json", []any{view.Profile{}}},
	{view.AdoptionSchema, "curfew session adopt -o json", []any{view.Adoption{}}},
	{view.SessionLogSchema, "curfew logs NAME -o json", []any{view.SessionLog{}}},
	{session.HostSchema, "what a machine of a session is told, for curfew agent host", []any{session.HostConfig{}}},
	{session.OrderSchema, "order.json below a session's control prefix", []any{session.Order{}}},
	{session.StatusSchema, "status-NODE.json below a session's control prefix", []any{session.Status{}}},
	{view.HoldSchema, "curfew budget settle, release and extend -o json", []any{view.OneHold{}}},
	{view.BillSchema, "curfew bill import -o json", []any{view.Bill{}}},
	{view.BillShowSchema, "curfew bill show -o json", []any{view.BillShow{}}},
	{view.ReconciliationSchema, "curfew bill reconcile -o json", []any{view.Reconciliation{}}},
	{view.EstimateSchema, "curfew estimate -o json", []any{view.Estimate{}}},
	{view.GateSchema, "curfew gate -o json", []any{view.Gate{}}},
	{view.GateReportSchema, "curfew gate report -o json", []any{view.GateReport{}}},
	{view.ApprovalsSchema, "curfew approvals -o json", []any{view.Approvals{}}},
	{view.DecisionSchema, "curfew approve and deny -o json", []any{view.Decision{}}},
	{view.NotifiersSchema, "/api/v1/notifiers", []any{view.Notifiers{}}},
	{view.NotifierTestSchema, "/api/v1/notifiers/{id}/test", []any{view.NotifierTest{}}},
	{approval.PlanSchema, "the plan of a request in curfew approvals -o json", []any{approval.Plan{}}},
	{view.InitSchema, "curfew init -o json", []any{view.Init{}}},
	{view.SettingsSetSchema, "curfew settings set -o json", []any{view.SettingsSet{}}},
	{view.SettingsSchema, "curfew settings -o json", []any{view.Settings{}}},
	{view.DoctorSchema, "curfew doctor metrics -o json", []any{view.Doctor{}}},
	{view.WhySchema, "curfew why now.wasted -o json", []any{view.Why{}}},
	{view.AlertsSchema, "curfew alerts -o json", []any{view.Alerts{}}},
	{view.DoctorStateSchema, "curfew doctor state -o json", []any{view.DoctorState{}}},
	{view.RecordSchema, "curfew record --format json", []any{view.Record{}}},
	{view.AccountsSchema, "GET /api/v1/accounts", []any{view.Accounts{}}},
	{view.ResourcesSchema, "GET /api/v1/resources", []any{view.Fleet{}}},
	{view.FindingsSchema, "GET /api/v1/findings", []any{view.Findings{}}},
	{view.BacktestsSchema, "GET and POST /api/v1/backtests", []any{view.Backtests{}}},
	{view.BillPeriodsSchema, "GET /api/v1/bills/periods", []any{view.BillPeriods{}}},
	{view.HistorySchema, "GET /api/v1/resources/{id}/history", []any{view.History{}}},
	{view.ActionsSchema, "GET /api/v1/actions", []any{view.Actions{}}},
	{view.ActionSchema, "GET /api/v1/actions/{id}", []any{view.OneAction{}}},
	{view.PeopleSchema, "GET /api/v1/people", []any{view.People{}}},
	{view.TokensSchema, "curfew token list -o json", []any{view.Tokens{}}},
	{view.LoginSchema, "curfew login -o json", []any{view.Login{}}},
	{view.NewTokenSchema, "curfew token create -o json", []any{view.NewToken{}}},
	{view.TokenSchema, "curfew token revoke -o json", []any{view.OneToken{}}},
	{
		checkpoint.Schema, "HEAD and manifests in a store of checkpoints",
		[]any{checkpoint.Head{}, checkpoint.Manifest{}},
	},
	{view.CheckpointSaveSchema, "curfew checkpoint save -o json", []any{view.CheckpointSave{}}},
	{view.CheckpointRestoreSchema, "curfew checkpoint restore -o json", []any{view.CheckpointRestore{}}},
	{view.CheckpointListSchema, "curfew checkpoint list -o json", []any{view.CheckpointList{}}},
	{view.CheckpointVerifySchema, "curfew checkpoint verify -o json", []any{view.CheckpointVerify{}}},
	{view.CheckpointGCSchema, "curfew checkpoint gc -o json", []any{view.CheckpointGC{}}},
	{view.WhoamiSchema, "curfew whoami -o json", []any{view.Whoami{}}},
	{view.AuditSchema, "curfew audit -o json", []any{view.Audit{}}},
	{view.VerifiedSchema, "curfew audit --verify -o json", []any{view.Verified{}}},
	{action.AnchorSchema, "curfew audit --anchor", []any{action.Anchor{}}},
	{view.ClockSchema, "curfew settings clock -o json", []any{view.Clock{}}},
	{
		view.PriceSchema, "curfew price list, show and update -o json",
		[]any{view.Machines{}, view.PriceShow{}, view.PriceUpdate{}},
	},
	{view.WatchingSchema, "curfew price watching -o json", []any{view.Watching{}}},
	{rightsize.Schema, "curfew plan rightsize -o json", []any{rightsize.Report{}, accountplan.Groups{}}},
	{accountplan.AccountSchema, "curfew plan account -o json", []any{accountplan.Account{}}},
	{mig.Schema, "curfew plan mig -o json", []any{mig.Report{}, mig.Counts{}}},
	{commit.Schema, "curfew plan commit -o json", []any{commit.Report{}}},
	{
		capacity.Schema, "curfew plan capacity -o json",
		[]any{capacity.Report{}, accountplan.Fleets{}, accountplan.Groups{}},
	},
	{stats.Schema, "curfew gateway stats -o json", []any{stats.Stats{}}},
	{view.GatewaysSchema, "curfew gateway list -o json", []any{view.Gateways{}}},
	{view.ServingFleetsSchema, "curfew fleets -o json", []any{view.ServingFleets{}}},
	{stats.ProfileSchema, "curfew gateway profile -o json", []any{stats.Profile{}}},
	{stats.KeySchema, "curfew gateway key -o json", []any{stats.NewKey{}}},
	{stats.UnitsSchema, "GET /curfew/units of a gateway", []any{stats.Units{}}},
	{stats.DrainedSchema, "POST /curfew/drain of a gateway", []any{stats.Drained{}}},
	{spot.Schema, "curfew plan spot -o json", []any{spot.Report{}}},
	{spot.CheckpointSchema, "curfew plan checkpoint -o json", []any{spot.CheckpointReport{}}},
	{market.Schema, "curfew plan market -o json", []any{market.Report{}}},
	{tco.Schema, "curfew plan tco -o json", []any{tco.Report{}}},
	{webhook.Schema, "a webhook", []any{webhook.Document{}}},
}

// file returns the file name of a document's schema. Policy tests are both a file written by people
// and a document of the same version.
func (o output) file() string {
	name := strings.TrimSuffix(strings.TrimPrefix(o.schema, "curfew."), "/v1")
	if o.schema == view.PolicyTestSchema {
		name += ".output"
	}
	return name + ".v1.json"
}

// reflected returns the schema of a document.
func (o output) reflected(code *source) *jsonschema.Schema {
	out := &jsonschema.Schema{}
	for _, form := range o.forms {
		s := code.reflect(form, o.schema)
		if len(o.forms) == 1 {
			out = s
			break
		}
		for name, def := range s.Definitions {
			if out.Definitions == nil {
				out.Definitions = jsonschema.Definitions{}
			}
			out.Definitions[name] = def
		}
		s.Version, s.Definitions = "", nil
		out.AnyOf = append(out.AnyOf, s)
	}
	out.Version, out.ID, out.Title = jsonschema.Version, jsonschema.ID(document.Schemas+o.file()), o.schema
	if out.Description = "printed by " + o.by; len(o.forms) == 1 &&
		code.comments[typeAt(reflect.TypeOf(o.forms[0]))] != "" {
		out.Description = code.comments[typeAt(reflect.TypeOf(o.forms[0]))]
	}
	return out
}

// reflect returns the schema of a value in the form of encoding/json.
func (code *source) reflect(v any, version string) *jsonschema.Schema {
	types := map[string]reflect.Type{}
	r := &jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, LookupComment: code.about,
		Mapper: code.mapped,
		Namer: func(t reflect.Type) string {
			if t.Name() == "" {
				return ""
			}
			name := path.Base(t.PkgPath()) + "." + t.Name()
			types[name] = t
			return name
		},
	}
	s := r.Reflect(v)
	nullable(s, reflect.TypeOf(v))
	for name, def := range s.Definitions {
		nullable(def, types[name])
	}
	maps.DeleteFunc(s.Definitions, func(name string, _ *jsonschema.Schema) bool {
		text, err := json.Marshal(s)
		// it belongs to a field hidden by another one
		return err == nil && !bytes.Contains(text, []byte(`"#/$defs/`+name+`"`))
	})
	if at, ok := s.Properties.Get("schema"); ok {
		at.Const, at.Description = version, "version of the document"
	}
	return s
}

// about returns the comment of a type or of a field, possibly of an embedded type.
func (code *source) about(t reflect.Type, field string) string {
	if field == "" {
		return code.comments[typeAt(t)]
	}
	return code.comment(t, field)
}

func typeAt(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// mapped returns the schemas of types with their own encoding.
func (code *source) mapped(t reflect.Type) *jsonschema.Schema {
	null := &jsonschema.Schema{Type: "null"}
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[json.RawMessage]():
		return nil
	case reflect.TypeFor[money.Dollars]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string", Pattern: dollars}, null}}
	case reflect.TypeFor[money.Amount](), reflect.TypeFor[money.Rate]():
		return &jsonschema.Schema{Type: "string", Pattern: dollars}
	case reflect.TypeFor[costs.Quantity]():
		return &jsonschema.Schema{Type: "number"}
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &jsonschema.Schema{Type: "string"}
	}
	if values := code.constants[typeAt(t)]; t.Kind() == reflect.String && values != nil {
		return &jsonschema.Schema{Type: "string", Enum: texts(values)}
	}
	return nil
}

// dollars matches an amount in a document.
const dollars = `^-?[0-9]+\.[0-9]{2}([0-9]*[1-9])?$`

// nullable allows null for the fields of a struct that encoding/json writes as null: pointers, and
// lists whose comments mention it.
func nullable(s *jsonschema.Schema, t reflect.Type) {
	if t == nil || t.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at, ok := s.Properties.Get(name)
		if ok && f.Type == reflect.TypeFor[money.Dollars]() && strings.Contains(options, "omit") {
			at.AnyOf, at.Type, at.Pattern = nil, "string", dollars // absent instead of null
		}
		listed := f.Type.Kind() == reflect.Slice && at != nil && strings.Contains(at.Description, "null")
		if f.Type.Kind() != reflect.Pointer && !listed || !ok || strings.Contains(options, "omit") || at.AnyOf != nil {
			continue
		}
		bare := *at
		bare.Description = ""
		s.Properties.Set(name, &jsonschema.Schema{
			Description: at.Description, AnyOf: []*jsonschema.Schema{&bare, {Type: "null"}},
		})
	}
}
