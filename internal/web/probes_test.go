package web

import (
	"errors"
	"net/http/httptest"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// markup is a text from outside that tries to become markup.
const markup = `"><script>alert(1)</script><img src=x onerror=alert(1)>'`

// drawn are the names of fields that hold markup of our own charts, which are drawn from documents.
var drawn = map[string]bool{"Picture": true, "SVG": true, "spark": true, "timeline": true}

// taint sets every text below a value to markup, with one element in each list and map.
func taint(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	if !v.CanSet() && v.CanAddr() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() != reflect.TypeFor[templ.SafeURL]() {
			v.SetString(markup)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		if v.Type() != reflect.TypeFor[*visit]() {
			v.Set(reflect.New(v.Type().Elem()))
			taint(v.Elem(), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		taint(v.Index(0), depth+1)
	case reflect.Array:
		for i := range v.Len() {
			taint(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		taint(key, depth+1)
		taint(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New(markup)))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if !drawn[v.Type().Field(i).Name] {
				taint(v.Field(i), depth+1)
			}
		}
	}
}

func tainted[T any]() *T {
	d := new(T)
	taint(reflect.ValueOf(d).Elem(), 0)
	return d
}

// TestTextFromOutsideStaysText draws every page from documents of which each text is markup: names, tags,
// reasons, log lines, policies and people among them.
func TestTextFromOutsideStaysText(t *testing.T) {
	v := &visit{
		now: time.Now(), r: httptest.NewRequest("GET", "/", nil), Visit: api.Visit{Call: &ops.Call{Owner: true}},
	}
	runs := *tainted[view.Runs]()
	for name, page := range map[string]templ.Component{
		"policies":  policiesContent(v, tainted[policiesDoc]()),
		"backtest":  backtestContent(v, tainted[backtestDoc]()),
		"alerts":    alertsContent(v, *tainted[view.Alerts](), *tainted[view.Fuses](), *tainted[view.DoctorState]()),
		"audit log": auditContent(v, tainted[auditDoc]()),
		"settings":  settingsContent(v, tainted[settingsDoc]()),
		"findings":  findingsContent(v, tainted[findingsDoc]()),
		"finding":   findingContent(v, tainted[findingDoc]()),
		"plan":      planContent(*tainted[accountplan.Account](), *tainted[layout.Sheet]()),
		"jobs":      jobsContent(v, tainted[jobsDoc]()),
		"job":       jobContent(v, tainted[jobDoc]()),
		"job log":   jobLogContent(v, tainted[jobDoc]()),
		"machines":  machinesContent(v, tainted[machinesDoc](), 1, 0),
		"machine":   machineContent(v, tainted[machineDoc]()),
		"fleets": fleetsContent(&fleetsDoc{
			doc: *tainted[view.ServingFleets](), sheet: report.ServingFleets(*tainted[view.ServingFleets]()),
		}),
		"fleet":     fleetContent(tainted[fleetDoc]()),
		"mine":      mineContent(v, tainted[mineDoc]()),
		"costs":     costsContent(v, tainted[costsDoc]()),
		"budgets":   budgetsContent(v, tainted[budgetsDoc]()),
		"approvals": approvalsContent(v, tainted[approvalsDoc]()),
		"now":       nowContent(v, tainted[nowDoc]()),
		"ls":        sheetContent(v, report.Runs(runs, v.now)),
		"status":    sheetContent(v, report.Status(runs, v.now)),
		"budget":    sheetContent(v, report.Budgets(*tainted[view.Budgets]())),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("it cannot be drawn: %v\n%s", r, debug.Stack())
				}
			}()
			var b strings.Builder
			if err := page.Render(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if i := max(strings.Index(text, "<script"), strings.Index(text, "<img src=x")); i >= 0 {
				t.Errorf("a text is markup: …%s", text[max(0, i-300):min(len(text), i+80)])
			}
			if !strings.Contains(text, "&lt;script&gt;") {
				t.Errorf("no text of the document is shown in %d bytes", len(text))
			}
		})
	}
}
