import java.io.StringReader;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;

/** Does with pgjdbc what reservation servers do, and says what it saw. */
public class Booking {
  public static void main(String[] args) throws Exception {
    List<String> saw = new ArrayList<>();
    try (Connection c = DriverManager.getConnection(args[0])) {
      // The sixth execution and those behind it use a named statement.
      try (PreparedStatement s = c.prepareStatement("insert into bookings (slot, member) values (?, ?)")) {
        for (int slot = 1; slot <= 8; slot++) {
          s.setInt(1, slot);
          s.setString(2, "java");
          s.executeUpdate();
        }
        try {
          s.executeUpdate();
        } catch (SQLException e) {
          saw.add("twice " + e.getSQLState());
        }
      }
      c.setAutoCommit(false);
      try (PreparedStatement s = c.prepareStatement("insert into payments (note) values (?)")) {
        // The commit of this one is held until the test lets it go.
        s.setString(1, "held");
        s.executeUpdate();
        c.commit();
        saw.add("held committed");
        for (int i = 0; i < 50; i++) {
          s.setString(1, "batch");
          s.addBatch();
        }
        saw.add("batch " + s.executeBatch().length);
        c.commit();
        // This one is told to try again, and does.
        for (int attempt = 1; ; attempt++) {
          try {
            s.setString(1, "again");
            s.executeUpdate();
            c.commit();
            saw.add("attempts " + attempt);
            break;
          } catch (SQLException e) {
            saw.add("failed " + e.getSQLState());
            c.rollback();
          }
        }
      }
      int rows = 0;
      try (PreparedStatement s = c.prepareStatement("select generate_series(1, ?)")) {
        s.setInt(1, 100);
        s.setFetchSize(7);
        try (ResultSet r = s.executeQuery()) {
          while (r.next()) rows++;
        }
      }
      saw.add("fetched " + rows);
      c.commit();
      c.setAutoCommit(true);
      PGConnection pg = c.unwrap(PGConnection.class);
      saw.add("copied " + pg.getCopyAPI().copyIn("copy payments (note) from stdin", new StringReader("a\nb\n")));
      try (Statement s = c.createStatement()) {
        s.execute("listen news");
        s.execute("notify news, 'hello'");
        saw.add("notified " + pg.getNotifications(10000)[0].getParameter());
      }
      saw.add("valid " + c.isValid(5));
    }
    System.out.println(String.join("; ", saw));
  }
}
