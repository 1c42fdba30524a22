package bubble

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestErrorsTakeNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		utilruntime.HandleErrorWithContext(context.Background(), errors.New("of a test"), "Reported")
		if took := time.Since(start); took != 0 {
			t.Errorf("a report took %v", took)
		}
	})
}
