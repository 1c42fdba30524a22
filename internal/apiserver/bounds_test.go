package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

// However many faults an object has, a bounded number of them is told: the
// message about all would take longer with the square of their number.
func TestFaultsWithoutEnd(t *testing.T) {
	s := apiservertest.Start(t)
	var labels strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&labels, `"+%d":"",`, i)
	}
	code, body, _ := call(t, s, "POST", mapsPath, configMap("bad", `,"labels":{`+strings.TrimSuffix(labels.String(), ",")+`}}`))
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusUnprocessableEntity || len(status.Details.Causes) != 1000 || !strings.HasSuffix(status.Message, " and 99000 more") {
		t.Errorf("%d, %d causes, %q", code, len(status.Details.Causes), status.Message[max(0, len(status.Message)-50):])
	}
}
