package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func TestAnswers(t *testing.T) {
	list := &v1.NodeList{}
	for name, degrees := range map[string]string{"cold": "", "mild": "35", "warm": "70", "hot": "71", "broken": "often"} {
		n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if degrees != "" {
			n.Labels = map[string]string{label: degrees}
		}
		list.Items = append(list.Items, n)
	}
	question, err := json.Marshal(extenderv1.ExtenderArgs{Pod: &v1.Pod{}, Nodes: list})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, body string, answer any) int {
		recorder := httptest.NewRecorder()
		handler(70).ServeHTTP(recorder, httptest.NewRequest("POST", path, strings.NewReader(body)))
		if recorder.Code == 200 {
			if err := json.Unmarshal(recorder.Body.Bytes(), answer); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return recorder.Code
	}
	var filtered extenderv1.ExtenderFilterResult
	ask("/filter", string(question), &filtered)
	kept := map[string]bool{}
	for _, n := range filtered.Nodes.Items {
		kept[n.Name] = true
	}
	if len(kept) != 3 || kept["hot"] || kept["broken"] || filtered.FailedNodes["hot"] != "node(s) were warmer than 70 °C" || filtered.FailedAndUnresolvableNodes["broken"] == "" {
		t.Errorf("filter: %+v", filtered)
	}
	var scores extenderv1.HostPriorityList
	ask("/prioritize", string(question), &scores)
	for _, s := range scores {
		if want := map[string]int64{"cold": 10, "mild": 5}[s.Host]; s.Score != want {
			t.Errorf("prioritize: %s has %d, want %d", s.Host, s.Score, want)
		}
	}
	for _, body := range []string{"", "{}", `{"Pod": {}, "NodeNames": ["a"]}`} {
		if code := ask("/filter", body, nil); code != 400 {
			t.Errorf("%q: code %d, want 400", body, code)
		}
	}
}
