package web_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/web"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// TestLinkSignsInOneBrowserOnce follows the link that the service printed first, alone on its line.
func TestLinkSignsInOneBrowserOnce(t *testing.T) {
	b := newBrowser(t)
	path := strings.TrimPrefix(demo.link, demo.base)
	got := b.get(path)
	if got.status != 200 || got.path != "/" || !strings.Contains(got.text, "a month is wasted now") {
		t.Fatalf("%d at %s", got.status, got.path)
	}
	again := newBrowser(t).get(path)
	if again.path != "/sign-in" || !strings.Contains(again.text, "The link was used") {
		t.Errorf("a second browser: %d at %s", again.status, again.path)
	}
	if got := newBrowser(t).get("/costs?by=team"); got.path != "/sign-in" ||
		!strings.Contains(got.text, `value="/costs?by=team"`) {
		t.Errorf("without a session: %d at %s", got.status, got.path)
	}
	if out := b.post("/sign-out", got.form()); out.path != "/sign-in" {
		t.Errorf("sign out: %d at %s", out.status, out.path)
	}
	if got := b.get("/"); got.path != "/sign-in" {
		t.Errorf("after the sign-out: %d at %s", got.status, got.path)
	}
}

// TestTokenSignsIn takes a token until it is revoked, and signing out does not end it.
func TestTokenSignsIn(t *testing.T) {
	for _, wrong := range []string{"", "x", "curfew_owner_x", "curfew_browser_x", "curfew_kept_x"} {
		if got := newBrowser(t).post("/sign-in", url.Values{"token": {wrong}}); got.status != http.StatusUnauthorized {
			t.Errorf("with %q: %d", wrong, got.status)
		}
	}
	secret := tokenOf(t, "wall-screen", "viewer")
	b := signedIn(t, secret)
	b.post("/sign-out", b.get("/").form())
	if got := b.get("/"); got.path != "/sign-in" {
		t.Errorf("after the sign-out: %s", got.path)
	}
	b = signedIn(t, secret)
	id := strings.TrimPrefix(secret, "curfew_")[:8]
	if status, text := demo.api("POST", "/api/v1/tokens/"+id+"/revoke", ""); status != 200 {
		t.Fatalf("revoke: %d %s", status, text)
	}
	if got := b.get("/"); got.path != "/sign-in" {
		t.Errorf("after the token was revoked: %s", got.path)
	}
}

var (
	scripts = regexp.MustCompile(`<script[^>]*>`)
	foreign = regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//[^"]*"`)
	inline  = regexp.MustCompile(`<[^>]*\s(?:style|on[a-z]+)="`)
)

// TestEveryPageIsCompleteWithoutScript opens each page without a script: it has its heading, it asks
// no other host, and nothing in it is against the policy that comes with it.
func TestEveryPageIsCompleteWithoutScript(t *testing.T) {
	b := signedIn(t, demo.token)
	for _, path := range demo.paths {
		got := b.get(path)
		if got.status != 200 || got.header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d, policy %q", path, got.status, got.header.Get("Content-Security-Policy"))
		}
		if strings.Count(got.text, "<h1") != 1 || !strings.Contains(got.text, `<main id="main"`) {
			t.Errorf("%s: %d headings", path, strings.Count(got.text, "<h1"))
		}
		for _, tag := range scripts.FindAllString(got.text, -1) {
			if !strings.Contains(tag, `src="/static/`) {
				t.Errorf("%s: a script in the page: %s", path, tag)
			}
		}
		if all := append(foreign.FindAllString(got.text, -1), inline.FindAllString(got.text, -1)...); len(all) > 0 ||
			strings.Contains(got.text, "<style") {
			t.Errorf("%s: %s", path, all)
		}
	}
}

// TestFirstViewIsSmall holds the first view, and all that a browser fetches for it.
func TestFirstViewIsSmall(t *testing.T) {
	b := signedIn(t, demo.token)
	first := b.packedSize("/")
	all := first
	for _, m := range regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`).FindAllStringSubmatch(b.get("/").text, -1) {
		size := b.packedSize(html.UnescapeString(m[1]))
		if all += size; strings.Contains(m[1], ".css") {
			first += size
		}
	}
	if first > 100<<10 || all > 160<<10 {
		t.Errorf("the first view takes %d bytes, everything %d", first, all)
	}
}

// TestFiguresOfBudgetsAndJobsAreExplained follows each link from a budget and a job to the terms of a figure.
func TestFiguresOfBudgetsAndJobsAreExplained(t *testing.T) {
	b := signedIn(t, demo.token)
	why := regexp.MustCompile(`href="(/why/[^"]+)"`)
	links := why.FindAllStringSubmatch(b.get("/budgets").text, -1)
	if len(links) < 3 {
		t.Fatalf("%d figures of budgets are linked", len(links))
	}
	jobs := regexp.MustCompile(`href="(/jobs/[^"/]+)"`)
	budgets := len(links)
	for began := time.Now(); len(links) == budgets; time.Sleep(time.Second) { // until a job of the account ran
		if time.Since(began) > 3*time.Minute {
			t.Fatal("no figure of a job is linked")
		}
		for _, job := range jobs.FindAllStringSubmatch(b.get("/jobs?all=yes").text, -1) {
			links = append(links, why.FindAllStringSubmatch(b.get(html.UnescapeString(job[1])).text, -1)...)
		}
	}
	for _, link := range links {
		p := b.get(html.UnescapeString(link[1]))
		if p.status != http.StatusOK || !strings.Contains(p.text, "As of") {
			t.Errorf("%s: %d, %.300s", link[1], p.status, p.text)
		}
	}
}

// TestFormNeedsItsToken changes nothing for a form that this session did not get.
func TestFormNeedsItsToken(t *testing.T) {
	b, other := signedIn(t, demo.token), signedIn(t, tokenOf(t, "other-operator", "operator"))
	frozen := func() bool {
		_, doc := demo.api("GET", "/api/v1/freezes", "")
		return strings.Contains(doc, `"frozen": true`)
	}
	form := b.get("/").form()
	for name, token := range map[string]string{
		"no token": "", "a guess": "abc", "another session": other.get("/").form().Get("form_token"),
	} {
		got := b.post("/do/freeze", url.Values{"form_token": {token}, "key": {"k"}, "reason": {"forged"}})
		if got.status != http.StatusForbidden || frozen() {
			t.Fatalf("%s: %d, frozen %t", name, got.status, frozen())
		}
	}
	form.Set("reason", "a demo")
	form.Set("back", "/alerts")
	for range 3 { // repeated clicks act once
		if got := b.post("/do/freeze", form); got.status != 200 || got.path != "/alerts" || !frozen() {
			t.Fatalf("%d at %s, frozen %t", got.status, got.path, frozen())
		}
	}
	_, log := demo.api("GET", "/api/v1/audit?what=freeze", "")
	if n := strings.Count(log, `"because": "a demo"`); n != 1 {
		t.Errorf("%d entries of the freeze: %s", n, log)
	}
	if got := b.get("/"); !strings.Contains(got.text, "<b>Frozen</b>") {
		t.Error("the frame does not say that actions are frozen")
	}
	form = b.get("/").form()
	form.Set("reason", "over")
	if got := b.post("/do/unfreeze", form); got.status != 200 || frozen() {
		t.Errorf("unfreeze: %d", got.status)
	}
}

var doForms = regexp.MustCompile(`action="/do/[a-z]+"`)

// TestViewerSeesNoRefusedControl opens every page as a viewer, and forges every form that there is.
func TestViewerSeesNoRefusedControl(t *testing.T) {
	owner, viewer := signedIn(t, demo.token), signedIn(t, tokenOf(t, "a-viewer", "viewer"))
	var seen []string
	for _, path := range demo.paths {
		seen = append(seen, doForms.FindAllString(owner.get(path).text, -1)...)
		got := viewer.get(path)
		if got.status != 200 {
			t.Errorf("%s: %d", path, got.status)
		}
		if forms := doForms.FindAllString(got.text, -1); len(forms) > 0 {
			t.Errorf("%s: %s", path, forms)
		}
	}
	slices.Sort(seen)
	if seen = slices.Compact(seen); len(seen) < 8 {
		t.Fatalf("the owner sees only the forms %s", seen)
	}
	for _, form := range web.FormActions() {
		sent := viewer.get("/").form()
		sent.Set("id", "x")
		sent.Set("for", "1h")
		sent.Set("name", "x")
		sent.Set("roles", "viewer")
		sent.Set("grace", "1h")
		sent.Set("reason", "forged")
		if got := viewer.post("/do/"+form, sent); got.status != http.StatusForbidden {
			t.Errorf("a forged %s: %d", form, got.status)
		}
	}
}

// TestTextFromOutsideStaysText puts markup where people and programs write.
func TestTextFromOutsideStaysText(t *testing.T) {
	const probe = `<script>alert(1)</script>"><img src=x onerror=alert(1)>`
	b := signedIn(t, demo.token)
	machine := demo.paths[7]
	form := b.get(machine).form()
	form.Set("id", strings.TrimPrefix(machine, "/machines/"))
	form.Set("for", "2h")
	form.Set("reason", probe)
	form.Set("back", machine)
	if got := b.post("/do/keep", form); got.status != 200 {
		t.Fatalf("keep: %d %s", got.status, got.text)
	}
	tokenOf(t, probe, "viewer")
	query := url.QueryEscape(probe)
	for _, path := range []string{
		machine, "/", "/machines?q=" + query, "/machines?team=" + query + "&sort=" + query + "&group=" + query,
		"/audit", "/audit?what=" + query, "/findings?q=" + query, "/costs?where=" + query, "/costs?by=" + query,
		"/mine?of=" + query, "/settings", "/machines/" + url.PathEscape(probe),
		"/policies/backtests/" + url.PathEscape(probe),
		"/sign-in?to=" + query, "/" + query,
	} {
		got := b.get(path)
		if strings.Contains(got.text, "<script>alert") || strings.Contains(got.text, "<img") {
			t.Errorf("%s: the probe is markup", path)
		}
		if got.header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d without the policy", path, got.status)
		}
	}
	if got := b.get(machine); !strings.Contains(got.text, "&lt;script&gt;alert(1)") {
		t.Error("the reason of the exemption is not shown")
	}
}

// TestBackLeadsInside sends no one to another site.
func TestBackLeadsInside(t *testing.T) {
	for _, to := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)", "evil"} {
		b := newBrowser(t)
		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		got := b.post("/sign-in", url.Values{"token": {demo.token}, "to": {to}})
		if got.status != http.StatusSeeOther || got.header.Get("Location") != "/" {
			t.Errorf("%s: %d to %s", to, got.status, got.header.Get("Location"))
		}
	}
}

var (
	keyRow = regexp.MustCompile(`<li class="(is-[a-z]+)">.*?<span>([^<]+)</span> <b>([^<]+)</b>`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// TestPageAndReportShareFigures draws the newest audit as a page and as a report.
func TestPageAndReportShareFigures(t *testing.T) {
	var b bytes.Buffer
	if err := report.HTML(&b, demo.scan, report.Options{}); err != nil {
		t.Fatal(err)
	}
	rows := func(text string) (out []string) {
		for _, m := range keyRow.FindAllStringSubmatch(text, -1) {
			out = append(out, strings.Join(m[1:], " "))
		}
		slices.Sort(out)
		return out
	}
	got := rows(signedIn(t, demo.token).get("/").text)
	want := rows(b.String())
	if len(want) != 4 || (!slices.Equal(got, want) && demo.scan.FinishedAt.Equal(newestScan(t))) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRowsAddUpToHeadline adds the figures of the page Now up to the sentence above them.
func TestRowsAddUpToHeadline(t *testing.T) {
	text := signedIn(t, demo.token).get("/").text
	headline := dollars(t, tags.ReplaceAllString(regexp.MustCompile(`<h1>.*?</h1>`).FindString(text), ""))
	if len(headline) != 2 {
		t.Fatalf("the headline has the figures %v", headline)
	}
	sum := 0.0
	for _, m := range keyRow.FindAllStringSubmatch(text, -1) {
		sum += dollars(t, m[3])[0]
		if m[2] == "wasted" && dollars(t, m[3])[0] != headline[0] {
			t.Errorf("wasted %s, headline %v", m[3], headline)
		}
	}
	if sum != headline[1] {
		t.Errorf("the parts come to %v of %v", sum, headline[1])
	}
	teams := 0.0
	table := regexp.MustCompile(`(?s)<h2>By team</h2>.*?</table>`).FindString(text)
	for _, m := range regexp.MustCompile(`class="num is-idle"><a[^>]*>([^<]+)<`).FindAllStringSubmatch(table, -1) {
		teams += dollars(t, m[1])[0]
	}
	rows := float64(strings.Count(table, "<tr>") - 1) // each is printed to the dollar
	if teams < headline[0]-rows || teams > headline[0]+rows {
		t.Errorf("the teams waste %v, the headline says %v", teams, headline[0])
	}
}

// TestEveryFigureIsExplained follows the figures of the page Now to the rows that add up to them.
func TestEveryFigureIsExplained(t *testing.T) {
	b := signedIn(t, demo.token)
	links := regexp.MustCompile(`href="(/why/[^"]+)"[^>]*>`).FindAllStringSubmatch(b.get("/").text, -1)
	if len(links) < 5 {
		t.Fatalf("%d figures are explained", len(links))
	}
	for page, prefix := range map[string]string{"/plan": "/why/plan.", "/costs": "/why/bill."} {
		found := regexp.MustCompile(`href="(`+prefix+`[^"]+)"[^>]*>`).FindAllStringSubmatch(b.get(page).text, -1)
		if len(found) == 0 {
			t.Errorf("%s explains no figure", page)
		}
		links = append(links, found...)
	}
	for _, m := range links {
		got := b.get(html.UnescapeString(m[1]))
		if got.status != 200 || !strings.Contains(got.text, "Left out") && !strings.Contains(got.text, "<tbody>") {
			t.Errorf("%s: %d", m[1], got.status)
		}
	}
	if got := b.get("/why/no.such.figure"); got.status != http.StatusNotFound {
		t.Errorf("an unknown figure: %d", got.status)
	}
}

// TestStaticFilesAreKept checks that browsers keep a file until it is another one.
func TestStaticFilesAreKept(t *testing.T) {
	b := newBrowser(t)
	text := b.get("/sign-in").text
	file := html.UnescapeString(regexp.MustCompile(`href="(/static/curfew\.css[^"]+)"`).FindStringSubmatch(text)[1])
	if got := b.get(file); got.status != 200 || !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d %v", file, got.status, got.header)
	}
	if got := b.get("/static/curfew.css"); strings.Contains(got.header.Get("Cache-Control"), "immutable") {
		t.Error("a file without its version is kept")
	}
	for _, path := range []string{"/static/htmx.LICENSE", "/static/web.go", "/static/..%2fweb.go"} {
		if got := b.get(path); got.status == 200 {
			t.Errorf("%s is served", path)
		}
	}
}

// TestCostsAsFile downloads what the page shows.
func TestCostsAsFile(t *testing.T) {
	got := signedIn(t, demo.token).get("/costs.csv?by=team&since=7d")
	if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), "text/csv") ||
		!strings.Contains(got.text, "language") {
		t.Errorf("%d %v", got.status, got.header)
	}
}

// TestApproverDecidesOnPage approves one request and rejects the other one, each once.
func TestApproverDecidesOnPage(t *testing.T) {
	b := signedIn(t, demo.token)
	got := b.get("/approvals")
	ids := regexp.MustCompile(`action="/do/(?:approve|deny)">.*?name="id" value="([0-9a-f]+)"`).
		FindAllStringSubmatch(strings.ReplaceAll(got.text, "\n", " "), -1)
	if len(ids) < 4 {
		t.Fatalf("%d forms on the page", len(ids))
	}
	form := got.form()
	form.Set("id", ids[0][1])
	if got := b.post("/do/approve", form); got.status != 200 {
		t.Fatalf("approve: %d %s", got.status, tags.ReplaceAllString(got.text, ""))
	}
	form = b.get("/approvals").form()
	form.Set("id", ids[2][1])
	form.Set("reason", "not this month")
	form.Set("back", "/approvals")
	if got = b.post("/do/deny", form); got.status != 200 || !strings.Contains(got.text, "not this month") {
		t.Fatalf("deny: %d", got.status)
	}
	_, doc := demo.api("GET", "/api/v1/approvals?all=true", "")
	if !strings.Contains(doc, `"state": "approved"`) || !strings.Contains(doc, `"state": "denied"`) {
		t.Error(doc)
	}
}

// TestScriptIsAsPublished holds the one script of others to the hash of its release.
func TestScriptIsAsPublished(t *testing.T) {
	text, err := os.ReadFile("static/htmx.min.js")
	if err != nil {
		t.Fatal(err)
	}
	const want = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != want {
		t.Errorf("htmx 4.0.1 has the hash %s, want %s", got, want)
	}
}

// TestFixShrinksAtNextAudit fixes a bucket from its page: the owner is warned, a second person approves,
// the provider confirms, and the audit after it finds less.
func TestFixShrinksAtNextAudit(t *testing.T) {
	var found *view.Finding
	for i := range demo.scan.Findings {
		if f := &demo.scan.Findings[i]; f.Rule == "bucket-no-lifecycle" && f.MonthlySavingsUSD.Or(0) > 0 {
			found = f
			break
		}
	}
	if found == nil {
		t.Fatal("the simulated account has no bucket without a lifecycle")
	}
	b := signedIn(t, demo.token)
	path := "/findings/" + found.ID
	deadline := time.Now().Add(4 * time.Minute)
	for confirmed := false; !confirmed; {
		form := b.get(path).form()
		form.Set("id", found.ID)
		form.Set("grace", "15m")
		form.Set("back", path)
		form.Set("key", fmt.Sprint("fix ", time.Now().UnixNano()))
		got := b.post("/do/fix", form)
		_, said, _ := strings.Cut(got.text, `class="said"`)
		said, _, _ = strings.Cut(said, "</p>")
		confirmed = strings.Contains(strings.ToLower(said), "confirmed: ")
		if time.Now().After(deadline) {
			t.Fatalf("the fix was not confirmed: %s", got.text)
		}
	}
	for {
		_, text := demo.api("GET", "/api/v1/scans/last", "")
		var doc view.Scan
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(doc.Findings, func(f view.Finding) bool { return f.ID == found.ID })
		if at < 0 || doc.Findings[at].MonthlySavingsUSD.Or(0) < found.MonthlySavingsUSD.Or(0)/2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the audit of %s still finds %+v", doc.FinishedAt, doc.Findings[at])
		}
		time.Sleep(100 * time.Millisecond) // between two looks, which the deadline bounds
	}
}
