package web

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
)

// formAction is the operation of a form, with the fields of the form as its input.
type formAction struct {
	operation ops.Info
	// input makes the body of the call.
	input func(f url.Values) map[string]any
	// message is the sentence on the next page; empty takes the outcome in the answer.
	message string
}

// fields makes an input of the fields that a form has.
func fields(names ...string) func(url.Values) map[string]any {
	return func(f url.Values) map[string]any {
		in := map[string]any{}
		for _, name := range names {
			if text := strings.TrimSpace(f.Get(name)); text != "" {
				in[name] = text
			}
		}
		return in
	}
}

// with adds yes-or-no fields to an input.
func with(in func(url.Values) map[string]any, names ...string) func(url.Values) map[string]any {
	return func(f url.Values) map[string]any {
		out := in(f)
		for _, name := range names {
			if f.Get(name) != "" {
				out[name] = true
			}
		}
		return out
	}
}

// actions are the operations that forms call.
var actions = map[string]formAction{
	"keep":     {ops.KeepResource.Info, fields("for", "reason"), "Exempt. A warning that waits is withdrawn by the next pass."},
	"freeze":   {ops.Freeze.Info, fields("reason"), "All actions are frozen."},
	"unfreeze": {ops.Unfreeze.Info, fields("reason"), "Actions are allowed again."},
	"confirm":  {ops.ConfirmFuse.Info, fields("account", "for", "reason"), "Confirmed. The policy goes on at the next pass."},
	"fix":      {ops.FixFinding.Info, with(fields("grace"), "scratch_disks", "save_disks"), ""},
	"undo":     {ops.UndoAction.Info, with(fields("keep"), "enforce"), "Undone, and exempt for a day."},
	"approve":  {ops.Approve.Info, fields("reason", "up_to"), "Approved."},
	"deny":     {ops.Deny.Info, fields("reason"), "Rejected."},
	"extend":   {ops.ExtendSession.Info, fields("for"), "Extended."},
	"quit":     {ops.CancelJob.Info, with(fields(), "discard"), "It ends once its work is saved."},
	"again":    {ops.RunJob.Info, fields("again"), "It is asked for again."},
	"end":      {ops.Down.Info, with(fields(), "discard"), "It ends once its work is saved."},
	"test":     {ops.TestNotifier.Info, fields(), "The test message was accepted."},
	"token":    {ops.CreateToken.Info, tokenFields, ""},
	"revoke":   {ops.RevokeToken.Info, fields(), "The token counts no more."},
	"backtest": {ops.CreateBacktest.Info, backtestFields, "The backtest is queued."},
	"cancel":   {ops.CancelBacktest.Info, fields(), "Canceled."},
}

func tokenFields(f url.Values) map[string]any {
	in := fields("name", "for")(f)
	in["roles"] = append([]string{}, f["roles"]...)
	return in
}

// act calls the operation of a form, as a call of the API by the visitor.
func (p *Pages) act(w http.ResponseWriter, r *http.Request) {
	v := &visit{Visit: api.VisitOf(r.Context()), pages: p, w: w, r: r, now: p.Process.Now().UTC()}
	if why := v.refusedForm(); why != nil {
		p.refuse(v, *why)
		return
	}
	do, ok := actions[r.PathValue("action")]
	if !ok {
		p.refuse(v, refusalFor(notFound(r.URL.Path)))
		return
	}
	name := r.PostForm.Get("name")
	if do.operation.ID == ops.FixFinding.ID && v.may(do.operation) && name != r.PostForm.Get("named") {
		p.refuse(v, api.Refusal{Status: http.StatusUnprocessableEntity, Code: "not_named",
			Detail: "nothing undoes this, and the name that was typed is not " + plain.Line(name),
			Hint:   "type the name of the resource"})
		return
	}
	body, err := json.Marshal(do.input(r.PostForm))
	if err != nil {
		p.refuse(v, refusalFor(err))
		return
	}
	path := strings.Replace(do.operation.Path, "{id}", url.PathEscape(r.PostForm.Get("id")), 1)
	got := p.API.Carry(r, do.operation, path, body, r.PostForm.Get("key"))
	p.docs.forget()
	if got.Refusal != nil {
		p.refuse(v, *got.Refusal)
		return
	}
	if do.operation.HasSecret {
		p.showSecret(v, got.Document)
		return
	}
	said := do.message
	if said == "" {
		said = outcome(got.Document)
	}
	p.say(w, r, said)
	http.Redirect(w, r, inside(r.PostForm.Get("back")), http.StatusSeeOther)
}

// refusedForm is why a form does not count: no one is signed in, or a page of this service did not
// send it.
func (v *visit) refusedForm() *api.Refusal {
	switch err := v.r.ParseForm(); {
	case v.Refusal != nil:
		return v.Refusal
	case v.Call == nil:
		return &api.Refusal{Status: http.StatusUnauthorized, Code: "unauthenticated",
			Detail: "no one is signed in", Hint: "sign in and do it again"}
	case err != nil:
		return &api.Refusal{Status: http.StatusBadRequest, Code: "invalid", Detail: "the form cannot be read"}
	case !v.Sent(v.r.PostForm.Get("form_token")):
		return &api.Refusal{Status: http.StatusForbidden, Code: "foreign_form",
			Detail: "the form is not of this session", Hint: "open the page again and repeat it"}
	}
	return nil
}

// inside is a path of this service; any other is that of the first page.
func inside(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(to, "//") ||
		strings.HasPrefix(u.Path, "/do/") || strings.HasPrefix(u.Path, "/auth/") || strings.Contains(to, "\\") {
		return "/"
	}
	return u.RequestURI()
}

// saidCookie has what the last action of a visitor did, until the next page shows it.
const saidCookie = "curfew_said"

// say keeps a sentence for the next page.
func (p *Pages) say(w http.ResponseWriter, r *http.Request, text string) {
	http.SetCookie(w, &http.Cookie{
		Name: saidCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(plain.Cut(text, 400))), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil, MaxAge: int(time.Minute / time.Second),
	})
}

// takeMessage returns what the last action did, once.
func (v *visit) takeMessage() string {
	c, err := v.r.Cookie(saidCookie)
	if err != nil || v.r.Method != http.MethodGet {
		return ""
	}
	http.SetCookie(v.w, &http.Cookie{
		Name: saidCookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1,
	})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return plain.Line(string(text))
}

// newKey is the idempotency key of one form.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return "page-" + base64.RawURLEncoding.EncodeToString(b)
}

// signInPage asks who someone is.
func (p *Pages) signInPage(w http.ResponseWriter, r *http.Request) {
	v := api.VisitOf(r.Context())
	if v.Refusal != nil && v.Refusal.Status != http.StatusForbidden {
		p.show(w, r, v.Refusal.Status, bare(p, "Not served", refusal(*v.Refusal)))
		return
	}
	to := inside(r.URL.Query().Get("to"))
	if v.Call != nil {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	why := ""
	switch {
	case r.URL.Query().Get("why") == "link":
		why = "The link was used, or is older than 10 minutes. curfew login --browser prints another one."
	case v.Refusal != nil:
		why = capital(plain.Line(v.Refusal.Detail)) + "."
	}
	p.show(w, r, http.StatusOK, bare(p, "Sign in", signIn(p, to, why)))
}

// signIn signs a browser in by a token.
func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	v := api.VisitOf(r.Context())
	if v.Refusal != nil && v.Refusal.Code == "foreign_origin" || r.ParseForm() != nil {
		p.show(w, r, http.StatusForbidden, bare(p, "Not served", refusal(api.Refusal{
			Status: http.StatusForbidden, Detail: "a page of another site sent the form",
			Hint: "open the page itself",
		})))
		return
	}
	to := inside(r.PostForm.Get("to"))
	if why := p.API.SignIn(w, r, r.PostForm.Get("token")); why != nil {
		p.show(w, r, why.Status, bare(p, "Sign in", signIn(p, to, capital(plain.Line(why.Detail))+".")))
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// signOut ends the session of a browser.
func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	v := &visit{Visit: api.VisitOf(r.Context()), pages: p, w: w, r: r, now: p.Process.Now().UTC()}
	if why := v.refusedForm(); why != nil && v.Call != nil {
		p.refuse(v, *why)
		return
	}
	if why := p.API.SignOut(w, r); why != nil {
		p.refuse(v, *why)
		return
	}
	http.Redirect(w, r, api.SignInPath, http.StatusSeeOther)
}

// capital begins a sentence.
func capital(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[n:]
}

// initial is the letter that stands for a person.
func initial(name string) string {
	first, _ := utf8.DecodeRuneInString(plain.Line(name))
	return string(unicode.ToUpper(first))
}

// stamp is a time in an attribute.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// refusalTitle names what kind of refusal it is.
func refusalTitle(why api.Refusal) string {
	switch why.Status {
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusNotFound:
		return "Not found"
	case http.StatusTooManyRequests:
		return "Too many calls"
	case http.StatusConflict:
		return "Not done"
	}
	if why.Status >= http.StatusInternalServerError {
		return "The service failed"
	}
	return "Not done"
}
