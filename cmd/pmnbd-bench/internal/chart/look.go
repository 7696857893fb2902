package chart

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours is how many lines have a colour of their own. The ninth looks like the first, but for its
// dashes.
const Colours = 8

// The colours of the lines are those of Okabe and Ito, which people with any kind of colour
// blindness can tell apart, darkened for white paper and lightened for black.
var (
	lightLines = [Colours]string{"#0072b2", "#d55e00", "#00805c", "#b0508c", "#a87000", "#3d8fc4", "#7a7a00", "#555555"}
	darkLines  = [Colours]string{"#4aa8e8", "#ff8a3d", "#2fc59a", "#e596c2", "#f0b840", "#8fd0f5", "#e6de55", "#aaaaaa"}
)

// CSS is the part of a style sheet that pictures need: their colours for a light page and a dark
// one, and their font.
func CSS() template.CSS {
	vars := func(ink, grid string, lines [Colours]string) string {
		var b strings.Builder
		fmt.Fprintf(&b, ":root { --ink: %s; --grid: %s;", ink, grid)
		for i, c := range lines {
			fmt.Fprintf(&b, " --line%d: %s;", i, c)
		}
		b.WriteString(" }\n")
		return b.String()
	}
	return template.CSS(vars("#4b535d", "#dfe3e8", lightLines) +
		"@media (prefers-color-scheme: dark) { " + vars("#aeb6c0", "#2a3038", darkLines) + "}\n" +
		"svg text { font-family: \"Liberation Sans\", Arimo, Arial, Helvetica, sans-serif; }\n")
}

// dashes are those of the lines, in turn: a reader who sees no colours has these. There are fewer than
// colours, so that the ninth line is not the first again.
var dashes = [][]vg.Length{nil, {7, 3}, {2, 2}, {9, 3, 2, 3}, {4, 2}, {12, 3}, {1, 3}}

// shapes are those of the lines' marks.
var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// sampleWidth and sampleHeight are those of a sample, in CSS pixels.
const sampleWidth, sampleHeight = 34, 12

// drawSample draws a short piece of line i with its mark, from its left end at.
func drawSample(c draw.Canvas, i int, at vg.Point) {
	colour := lineColour(i)
	c.StrokeLine2(draw.LineStyle{Color: colour, Width: 2, Dashes: dashes[i%len(dashes)]}, at.X, at.Y, at.X+sampleWidth, at.Y)
	mark := draw.GlyphStyle{Color: colour, Radius: 4, Shape: shapes[i%len(shapes)]}
	c.DrawGlyph(mark, vg.Point{X: at.X + sampleWidth/2, Y: at.Y})
}

// Sample returns a short piece of line i, with its mark, for a legend.
func Sample(i int) (template.HTML, error) {
	canvas := vgsvg.New(sampleWidth, sampleHeight)
	drawSample(draw.New(canvas), i, vg.Point{Y: sampleHeight / 2})
	body, err := written(canvas)
	return template.HTML(fmt.Sprintf(`<svg class="sample" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" aria-hidden="true">%[3]s</svg>`,
		sampleWidth, sampleHeight, body)), err
}

// Picture returns the chart as a file of its own, with a legend above it.
func (c Chart) Picture() ([]byte, error) {
	const row, margin = 18, 10
	body, err := c.body()
	if err != nil {
		return nil, fmt.Errorf("draw %q: %w", c.Title, err)
	}
	style := textStyle()
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	legend := vgsvg.New(vg.Length(c.Width), row)
	canvas := draw.New(legend)
	var names vg.Length
	for _, s := range c.Series {
		names += sampleWidth + 5 + style.Width(s.Name)
	}
	// Many series come closer to each other.
	gap := vg.Length(2 * margin)
	if n := len(c.Series); n > 1 {
		gap = min(gap, max(5, (vg.Length(c.Width)-2*margin-names)/vg.Length(n-1)))
	}
	x := vg.Length(margin)
	for i, s := range c.Series {
		drawSample(canvas, i, vg.Point{X: x, Y: row / 2})
		canvas.FillText(style, vg.Point{X: x + sampleWidth + 5, Y: row / 2}, s.Name)
		x += sampleWidth + 5 + style.Width(s.Name) + gap
	}
	above, err := written(legend)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%[1]g" height="%[2]g" role="img" aria-label="%[3]s">`+
		"\n<style>\n%[4]s</style>\n%[5]s<g transform=\"translate(0, %[6]d)\">\n%[7]s</g>\n</svg>\n",
		c.Width, c.Height+row, html.EscapeString(c.Title), CSS(), above, row, body)
	return b.Bytes(), nil
}
