package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *State) answers() map[string]Answer {
	return map[string]Answer{
		"ec2:DescribeCapacityReservations":  s.capacityReservations,
		"ec2:DescribeReservedInstances":     s.reservedInstances,
		"ec2:DescribeSpotPriceHistory":      s.spotPriceHistory,
		"ec2:GetSpotPlacementScores":        s.placementScores,
		"savingsplans:DescribeSavingsPlans": s.savingsPlans,
		"sagemaker:ListApps":                s.apps,
		"sagemaker:DescribeApp":             s.app,
		"sagemaker:ListTags":                s.appTags,
		"pricing:GetProducts":               s.getProducts,
		"ce:GetCostAndUsage":                s.costAndUsage,
		"ec2:DescribeSpotInstanceRequests":  s.spotRequests,
		"ec2:DescribeLockedSnapshots":       s.lockedSnapshots,

		"s3:GetBucketLifecycleConfiguration": s.getLifecycle,
		"s3:PutBucketLifecycleConfiguration": s.putLifecycle,
		"s3:DeleteBucketLifecycle":           s.deleteLifecycle,

		"s3:PutBucketAnalyticsConfiguration":   s.putAnalytics,
		"s3:ListBucketAnalyticsConfigurations": s.listAnalytics,
	}
}

// page returns a page of items for a call: NextToken is an offset, and a page has at most limit
// items.
func page[T any](c *Call, all []T, maxParam string, limit int) (items []T, next string, err error) {
	from := 0
	token := c.Param("NextToken")
	if token == "" {
		token = c.Param("nextToken")
	}
	if token != "" {
		if from, err = strconv.Atoi(token); err != nil || from < 0 || from > len(all) {
			return nil, "", &Failure{400, "InvalidParameterValue", "The token '" + token + "' is invalid"}
		}
	}
	if n, err := strconv.Atoi(c.Param(maxParam)); err == nil && n > 0 {
		limit = min(limit, n)
	} else if n := asInt(c.Input[maxParam], 0); n > 0 {
		limit = min(limit, n)
	}
	to := min(from+limit, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next, nil
}

// filters parses the Filter.N.Name and Filter.N.Value.M parameters of the ec2 protocol.
func filters(c *Call) map[string][]string {
	out := map[string][]string{}
	for i := 1; ; i++ {
		name := c.Form.Get(fmt.Sprintf("Filter.%d.Name", i))
		if name == "" {
			return out
		}
		for j := 1; ; j++ {
			v, ok := c.Form[fmt.Sprintf("Filter.%d.Value.%d", i, j)]
			if !ok {
				break
			}
			out[name] = append(out[name], v...)
		}
	}
}

// list parses the Name.N parameters of the ec2 protocol.
func list(c *Call, name string) []string {
	var out []string
	for i := 1; ; i++ {
		v, ok := c.Form[fmt.Sprintf("%s.%d", name, i)]
		if !ok {
			return out
		}
		out = append(out, v...)
	}
}

// wanted reports whether values pass the filters.
func wanted(f map[string][]string, values map[string]string) bool {
	for name, allowed := range f {
		v, known := values[name]
		if !known || !slices.Contains(allowed, v) {
			return false
		}
	}
	return true
}

func tagSet(tags map[string]string) *Node {
	set := E("tagSet")
	for _, k := range sorted(tags) {
		set.Kids = append(set.Kids, E("item", T("key", k), T("value", tags[k])))
	}
	return set
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (s *State) capacityReservations(_ context.Context, c *Call) (*Reply, error) {
	f := filters(c)
	var all []*Node
	for _, r := range s.place(c).CapacityReservations {
		if !wanted(f, map[string]string{
			"state": "active", "instance-type": r.InstanceType, "availability-zone": r.Zone,
			"tenancy": "default"}) {
			continue
		}
		n := E("item", T("capacityReservationId", r.ID),
			T("capacityReservationArn", "arn:aws:ec2:"+c.Region+":"+c.Account+":capacity-reservation/"+r.ID),
			T("ownerId", c.Account), T("instanceType", r.InstanceType), T("instancePlatform", r.Platform),
			T("availabilityZone", r.Zone), T("tenancy", "default"), T("totalInstanceCount", r.Total),
			T("availableInstanceCount", r.Available), T("ebsOptimized", "true"), T("ephemeralStorage", "false"),
			T("state", "active"), T("startDate", stamp(r.Created)), T("instanceMatchCriteria", "open"),
			T("createDate", stamp(r.Created)), tagSet(r.Tags))
		kind, end := "default", "unlimited"
		if r.Block {
			kind = "capacity-block"
		}
		if !r.Ends.IsZero() {
			end = "limited"
			n.Kids = append(n.Kids, T("endDate", stamp(r.Ends)))
		}
		n.Kids = append(n.Kids, T("endDateType", end), T("reservationType", kind))
		all = append(all, n)
	}
	return set(c, "capacityReservationSet", all, 1000)
}

// set responds with one page of a set.
func set(c *Call, name string, all []*Node, limit int) (*Reply, error) {
	items, next, err := page(c, all, "MaxResults", limit)
	if err != nil {
		return nil, err
	}
	r := &Reply{XML: []*Node{E(name, items...)}}
	if next != "" {
		r.XML = append(r.XML, T("nextToken", next))
	}
	return r, nil
}

// DescribeReservedInstances has no pages.
func (s *State) reservedInstances(_ context.Context, c *Call) (*Reply, error) {
	f := filters(c)
	out := E("reservedInstancesSet")
	for _, r := range s.place(c).ReservedInstances {
		scope := "Region"
		if r.Zone != "" {
			scope = "Availability Zone"
		}
		if !wanted(f, map[string]string{"state": "active", "instance-type": r.InstanceType, "scope": scope,
			"product-description": "Linux/UNIX"}) {
			continue
		}
		n := E("item", T("reservedInstancesId", r.ID), T("instanceType", r.InstanceType), T("start", stamp(r.Start)),
			T("end", stamp(r.Start.Add(r.Duration))), T("duration", int64(r.Duration.Seconds())),
			T("usagePrice", r.UsagePrice), T("fixedPrice", r.FixedPrice), T("instanceCount", r.Count),
			T("productDescription", "Linux/UNIX"), T("state", "active"), T("instanceTenancy", "default"),
			T("currencyCode", "USD"), T("offeringClass", "standard"), T("offeringType", r.OfferingType),
			T("scope", scope), tagSet(r.Tags))
		if r.Zone != "" {
			n.Kids = append(n.Kids, T("availabilityZone", r.Zone))
		}
		if r.RecurringUSD != "" {
			n.Kids = append(n.Kids,
				E("recurringCharges", E("item", T("frequency", "Hourly"), T("amount", r.RecurringUSD))))
		}
		out.Kids = append(out.Kids, n)
	}
	return &Reply{XML: []*Node{out}}, nil
}

func (s *State) spotPriceHistory(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := filters(c)
	types, products := list(c, "InstanceType"), list(c, "ProductDescription")
	start, haveStart := asTime(c.Form.Get("StartTime"))
	var all []*Node
	for _, p := range s.spots {
		if p.Region != c.Region || (len(types) > 0 && !slices.Contains(types, p.InstanceType)) ||
			(len(products) > 0 && !slices.Contains(products, p.Product)) || (haveStart && p.Time.Before(start)) ||
			!wanted(f, map[string]string{"instance-type": p.InstanceType, "product-description": p.Product,
				"availability-zone": p.Zone}) {
			continue
		}
		all = append(all, E("item", T("instanceType", p.InstanceType), T("productDescription", p.Product),
			T("spotPrice", p.Price), T("timestamp", stamp(p.Time)), T("availabilityZone", p.Zone)))
	}
	return set(c, "spotPriceHistorySet", all, 1000)
}

func (s *State) placementScores(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	regions := list(c, "RegionName")
	var all []*Node
	for _, machineType := range list(c, "InstanceType") {
		for _, p := range s.scores[machineType] {
			if len(regions) == 0 || slices.Contains(regions, p.Region) {
				all = append(all, E("item", T("region", p.Region), T("availabilityZoneId", p.ZoneID),
					T("score", strconv.Itoa(p.Score))))
			}
		}
	}
	return set(c, "spotPlacementScoreSet", all, 1000)
}

// Savings plans belong to the account and are read in us-east-1.
func (s *State) savingsPlans(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var states []string
	for _, v := range asList(c.Input["states"]) {
		states = append(states, asString(v))
	}
	var all []any
	for _, k := range sorted(s.places) {
		if !strings.HasPrefix(k, c.Account+"/") || (len(states) > 0 && !slices.Contains(states, "active")) {
			continue
		}
		for _, p := range s.places[k].SavingsPlans {
			plan := map[string]any{"savingsPlanId": p.ID,
				"savingsPlanArn": "arn:aws:savingsplans::" + c.Account + ":savingsplan/" + p.ID, "state": "active",
				"savingsPlanType": p.Type, "paymentOption": p.PaymentOption, "productTypes": []any{"EC2"},
				"currency": "USD", "commitment": p.Commitment, "upfrontPaymentAmount": p.Upfront,
				"recurringPaymentAmount": p.Recurring, "start": stamp(p.Start), "end": stamp(p.End),
				"termDurationInSeconds": int64(p.End.Sub(p.Start).Seconds()), "tags": p.Tags}
			if p.Family != "" {
				plan["ec2InstanceFamily"] = p.Family
			}
			if p.Region != "" {
				plan["region"] = p.Region
			}
			all = append(all, plan)
		}
	}
	items, next, err := page(c, all, "maxResults", 1000)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"savingsPlans": append([]any{}, items...)}
	if next != "" {
		out["nextToken"] = next
	}
	return &Reply{Fields: out}, nil
}

func (s *State) apps(_ context.Context, c *Call) (*Reply, error) {
	var all []any
	for _, a := range s.place(c).Apps {
		all = append(all, a.document())
	}
	items, next, err := page(c, all, "MaxResults", 100)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"Apps": append([]any{}, items...)}
	if next != "" {
		out["NextToken"] = next
	}
	return &Reply{Fields: out}, nil
}

func (s *State) app(_ context.Context, c *Call) (*Reply, error) {
	for _, a := range s.place(c).Apps {
		is := func(name, value string) bool { return asString(c.Input[name]) == value }
		if is("DomainId", a.Domain) && is("AppType", a.Type) && is("AppName", a.Name) && is("SpaceName", a.Space) &&
			is("UserProfileName", a.User) {
			d := a.document()
			d["AppArn"] = a.arn(c)
			if !a.Active.IsZero() {
				d["LastUserActivityTimestamp"] = a.Active
			}
			return &Reply{Fields: d}, nil
		}
	}
	return nil, &Failure{400, "ResourceNotFound", "Unable to find the App"}
}

// appTags returns the tags of applications; the tags of everything else are moto's.
func (s *State) appTags(_ context.Context, c *Call) (*Reply, error) {
	for _, a := range s.place(c).Apps {
		if asString(c.Input["ResourceArn"]) != a.arn(c) {
			continue
		}
		tags := []any{}
		for _, k := range sorted(a.Tags) {
			tags = append(tags, map[string]any{"Key": k, "Value": a.Tags[k]})
		}
		return &Reply{Fields: map[string]any{"Tags": tags}}, nil
	}
	return nil, nil
}

// getProducts returns the documents that the test added; it only supports TERM_MATCH filters.
func (s *State) getProducts(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []any
	for _, p := range s.products {
		ok := p.ServiceCode == asString(c.Input["ServiceCode"])
		for _, f := range asList(c.Input["Filters"]) {
			m := asMap(f)
			if asString(m["Type"]) != "TERM_MATCH" {
				return nil, &Failure{400, "InvalidParameterException", "Filter type must be TERM_MATCH"}
			}
			ok = ok && strings.EqualFold(p.Attributes[asString(m["Field"])], asString(m["Value"]))
		}
		if ok {
			all = append(all, p.Document)
		}
	}
	items, next, err := page(c, all, "MaxResults", 100)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"FormatVersion": "aws_v1", "PriceList": append([]any{}, items...)}
	if next != "" {
		out["NextToken"] = next
	}
	return &Reply{Fields: out}, nil
}

// protect protects machines that are launched with protection, because moto only protects modified
// ones.
func (s *Server) protect(ctx context.Context, c *Call, body []byte) error {
	if c.Name() != "ec2:RunInstances" || c.Form.Get("DisableApiTermination") != "true" {
		return nil
	}
	doc, err := parseXML(body)
	if err != nil {
		return err
	}
	for _, id := range doc.All("instanceId") {
		form := url.Values{
			"Action": {"ModifyInstanceAttribute"}, "InstanceId": {id.Text}, "DisableApiTermination.Value": {"true"},
		}
		if _, err := s.ask(ctx, c, form); err != nil {
			return err
		}
	}
	return nil
}

// listTrainingJobs requests all jobs from moto and filters by status afterwards, because the status
// is corrected: moto completes every job at once.
func (s *Server) listTrainingJobs(ctx context.Context, c *Call) (*Reply, error) {
	status := asString(c.Input["StatusEquals"])
	in := map[string]any{}
	for k, v := range c.Input {
		if k != "StatusEquals" && k != "MaxResults" && k != "NextToken" {
			in[k] = v
		}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.upstream+"/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	req.Header.Set("X-Amz-Target", "SageMaker.ListTrainingJobs")
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.AccessKey+"/20260101/"+c.Region+
		"/sagemaker/aws4_request, SignedHeaders=host, Signature=0")
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read forwarded answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("moto answered %d: %s", res.StatusCode, out)
	}
	doc, err := decodeJSON(s.patches.apply(c, out))
	if err != nil {
		return nil, fmt.Errorf("read forwarded answer: %w", err)
	}
	all := slices.DeleteFunc(asList(doc["TrainingJobSummaries"]), func(j any) bool {
		return status != "" && asString(asMap(j)["TrainingJobStatus"]) != status
	})
	items, next, err := page(c, all, "MaxResults", 100)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{"TrainingJobSummaries": append([]any{}, items...)}
	if next != "" {
		fields["NextToken"] = next
	}
	return &Reply{Fields: fields}, nil
}

// costsPage is the number of groups per page of the bill, small enough for a test with several
// pages.
const costsPage = 3

// costAndUsage responds with one period, the requested one, by service.
func (s *State) costAndUsage(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var metric string
	for _, m := range asList(c.Input["Metrics"]) {
		metric = asString(m)
	}
	all := s.costs[c.Account]
	from := atoi(asString(c.Input["NextPageToken"]))
	if metric == "" || from < 0 || from > len(all) {
		return nil, &Failure{
			400, "ValidationException", "Metrics are required, and the token must be one that was given",
		}
	}
	to := min(from+costsPage, len(all))
	groups := []any{}
	for _, x := range all[from:to] {
		groups = append(groups, map[string]any{"Keys": []any{x.Service},
			"Metrics": map[string]any{metric: map[string]any{"Amount": x.USD, "Unit": "USD"}}})
	}
	out := map[string]any{
		"GroupDefinitions":         []any{map[string]any{"Type": "DIMENSION", "Key": "SERVICE"}},
		"DimensionValueAttributes": []any{},
		"ResultsByTime": []any{
			map[string]any{
				"TimePeriod": c.Input["TimePeriod"], "Estimated": true, "Groups": groups, "Total": map[string]any{},
			},
		}}
	if to < len(all) {
		out["NextPageToken"] = strconv.Itoa(to)
	}
	return &Reply{Fields: out}, nil
}
