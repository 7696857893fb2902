package persist

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhyNot is the conformance table of design §3.3: class × method.
func TestWhyNot(t *testing.T) {
	for _, c := range []struct {
		class  Class
		method Method
		want   Reason
	}{
		{ClassVolatile, MethodGPSPM, ReasonSound},
		{ClassVolatile, MethodAPM, ReasonClass},
		{ClassVolatile, MethodFlush, ReasonClass},
		{ClassFile, MethodGPSPM, ReasonSound},
		{ClassFile, MethodAPM, ReasonClass},
		{ClassFile, MethodFlush, ReasonClass},
		{ClassPMem, MethodGPSPM, ReasonSound},
		{ClassPMem, MethodAPM, ReasonNotServed},
		{ClassPMem, MethodFlush, ReasonNotServed},
	} {
		t.Run(c.class.String()+"/"+c.method.String(), func(t *testing.T) {
			require.Equal(t, c.want, WhyNot(c.method, c.class))
		})
	}
}
