// A click on a heading sorts the table by that column; another click turns it round.
document.querySelectorAll("#rows th").forEach((heading, column) => {
  let direction = 1;
  heading.addEventListener("click", () => {
    const body = document.querySelector("#rows tbody");
    const value = (row) => row.children[column].dataset.v;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const numeric = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return direction * (numeric ? x - y : x.localeCompare(y));
    });
    direction = -direction;
    body.append(...rows);
  });
});
