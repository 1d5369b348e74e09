package wire

import "encoding/json"

// Machine returns the Price List's document of a Linux machine of shared tenancy,
// on demand, at so many dollars an hour.
func Machine(instanceType, region, hourly string) Product {
	attributes := map[string]string{"instanceType": instanceType, "regionCode": region, "operatingSystem": "Linux",
		"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
		"licenseModel": "No License required", "operation": "RunInstances", "servicecode": "AmazonEC2",
		"usagetype": "BoxUsage:" + instanceType, "currentGeneration": "Yes", "locationType": "AWS Region"}
	sku := "SKU" + instanceType + region
	doc := map[string]any{
		"product":     map[string]any{"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
		"serviceCode": "AmazonEC2",
		"terms": map[string]any{"OnDemand": map[string]any{sku + ".JRTCKXETXF": map[string]any{
			"sku": sku, "offerTermCode": "JRTCKXETXF", "effectiveDate": "2026-07-01T00:00:00Z", "termAttributes": map[string]any{},
			"priceDimensions": map[string]any{sku + ".JRTCKXETXF.6YS6EN2CT7": map[string]any{
				"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "rateCode": sku + ".JRTCKXETXF.6YS6EN2CT7", "appliesTo": []string{},
				"description":  "$" + hourly + " per On Demand Linux " + instanceType + " Instance Hour",
				"pricePerUnit": map[string]any{"USD": hourly}}}}}},
		"version": "20260706000000", "publicationDate": "2026-07-06T00:00:00Z",
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return Product{ServiceCode: "AmazonEC2", Attributes: attributes, Document: string(b)}
}
