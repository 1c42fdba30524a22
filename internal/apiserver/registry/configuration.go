package registry

import (
	"bytes"
	"encoding/json"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// configuration decodes the body of an apply. Its content type is YAML, but
// most clients send JSON, which is decoded many times faster. plain reports
// that the body was JSON without duplicate fields.
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

// plainJSON decodes a JSON object that certainly means the same in YAML: one
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

// onlyIntegers reports whether all numbers in a JSON value are integers.
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
