package registry

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// configuration reads what is applied. Clients send it as YAML by its content
// type and, most of them, as JSON in fact, which is read many times faster.
// plain says that it was such JSON, without duplicate fields.
func (p *Patch) configuration() (content map[string]any, plain bool, err error) {
	if content, plain = plainJSON(p.body); plain {
		return content, true, nil
	}
	body, err := yaml.YAMLToJSON(p.body)
	if err != nil {
		return nil, false, err
	}
	content = map[string]any{}
	return content, false, kjson.UnmarshalCaseSensitivePreserveInts(body, &content)
}

// plainJSON reads a JSON object that means the same in YAML beyond doubt:
// without tabs, escapes, merge keys, duplicate fields and numbers other than
// integers.
func plainJSON(body []byte) (map[string]any, bool) {
	if !bytes.HasPrefix(body, []byte("{")) || bytes.ContainsAny(body, "\t\\") || bytes.Contains(body, []byte(`"<<"`)) || !json.Valid(body) {
		return nil, false
	}
	content := map[string]any{}
	if strict, err := kjson.UnmarshalStrict(body, &content); err != nil || len(strict) > 0 {
		return nil, false
	}
	return content, onlyIntegers(content)
}

// onlyIntegers says whether there is no number but integers in a JSON value.
func onlyIntegers(value any) bool {
	switch v := value.(type) {
	case float64:
		return false
	case map[string]any:
		for _, inner := range v {
			if !onlyIntegers(inner) {
				return false
			}
		}
	case []any:
		for _, inner := range v {
			if !onlyIntegers(inner) {
				return false
			}
		}
	}
	return true
}
